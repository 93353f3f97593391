// Package failover decides when a control plane endpoint that is a host's address
// moves to another host, which host it moves to, and when the move is complete. The
// ElementalCluster controller calls it with what it has read, and applies the decision.
// The package is pure: no I/O, no clock.
//
// Only evidence moves the endpoint away from a dead host: connected control-plane hosts
// report that it does not answer, none reports that it answers, and its own host does
// not report a healthy API server. Silence is no evidence: a site that is offline moves
// nothing, nor does a dead agent on a living host.
package failover

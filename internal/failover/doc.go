// Package failover decides when an endpoint that is a host's address leaves that
// host, which host it goes to, and when such a move is complete. It is pure: what
// is known goes in, a decision with its reasons comes out.
//
// An endpoint is dead by evidence only: control-plane hosts whose agents are
// connected say that it does not answer them, none says that it does, and its own
// host does not say that its API server is well. Silence alone is no evidence: a
// site that went dark moves nothing, nor does a dead agent on a living host.
package failover

// Package probe checks every five seconds whether the control plane endpoint of
// a cluster and the API server of this host answer. The agent runs a Prober as
// long as its plan requests it, and reports each change to the manager, which
// decides whether the endpoint moves.
//
// A wrong result in either direction is harmful, so a server counts as failing
// only after two failed probes in a row, and as answering after one success. A
// probe that the host could not make for a reason of its own is neither.
package probe

// Package probe looks every five seconds whether a cluster's endpoint and the
// API server of this host answer, and tells when that changes. It is what a
// manager moves an endpoint by, so it errs on neither side: two probes in a row
// have to fail before a server counts as unreachable, one that succeeds ends
// that, and what the host could not look at for a reason of its own is neither.
package probe

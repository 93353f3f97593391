// Package remote runs a fleet in a process of its own, so that its memory and CPU time
// are separate from those of its user.
//
// The protocol is lines of JSON on standard input and output. The process ends at the
// end of its input, so it never outlives its user.
package remote

// Package fleet runs hosts that are none: each is the real agent loop with the
// real protocol and keys, over an operating system that exists in memory only. One
// process runs from one to ten thousand of them.
//
// A virtual host has a disk that survives power cuts, a clock, an address of its own
// on loopback, a name, and power. What bootstrap data makes of it is up to a
// Software. Faults of hosts and of their network happen on request.
package fleet

// Package fleet runs hosts that are none: each is the real agent loop with the
// real protocol and keys, over an operating system that exists in memory only. One
// process runs from one to ten thousand of them.
//
//	f, err := fleet.New(fleet.Settings{Count: 6, Servers: servers, TrustBundle: bundle, Token: token})
//	...
//	defer f.Close()
//	err = f.PowerOn(ctx, 0)
//
// A virtual host has a disk that survives power cuts, a clock, an address of its own
// on loopback, a name, and power. What it runs beside the agent is up to a Software.
// Faults of hosts and of their network happen on request, at random or one by one.
//
// What is real: package agent with its clients, keys, store, runners of operations,
// keeper and prober of endpoints, and linker of Nodes. What is not: everything that
// the agent asks of Linux. A host has no TPM, erases no disks and doesn't update its
// agent.
package fleet

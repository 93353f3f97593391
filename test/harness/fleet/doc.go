// Package fleet runs virtual hosts: each is the real agent loop with the real protocol and
// real keys, on an operating system that is simulated in memory. One process runs up to
// ten thousand hosts.
//
//	f, err := fleet.New(fleet.Settings{Count: 6, Servers: servers, TrustBundle: bundle, Token: token})
//	...
//	defer f.Close()
//	err = f.PowerOn(ctx, 0)
//
// A virtual host has a disk that survives power cuts, a clock, an address of its own on
// loopback, a name, and power. A Software decides what it runs apart from the agent.
// Faults of hosts and of their network are injected at random or one by one.
//
// What is real: package agent with its clients, keys, store, runners of operations,
// tunnels, keeper, forwarder and prober of endpoints, and linker of Nodes. What is not:
// everything that the agent asks of Linux. A host has no TPM, erases no disks and doesn't
// update its agent. The forwarder is no process of its own, but outlives the agent as one
// does, and listens at a loopback address that only the host itself has.
package fleet

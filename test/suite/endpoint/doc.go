// Package endpoint tests that a control plane endpoint with a host's address follows
// its cluster. It simulates a fleet through fifty moves: hosts die and return, agents
// go offline, messages are lost, late or repeated, Machines are deleted, addresses
// change, clocks jump, and managers crash in the middle of a write or continue with a
// stale cache after they have lost their lease.
//
// Real are the reconcilers of ElementalClusters and ElementalMachines, with failover,
// failure domains, placement and release, the agent API's record of contacts, and the plans
// of hosts. Simulated are hosts with their agents and network, workload clusters, Cluster
// API with KubeadmControlPlane, and the cache and the watches of each manager.
//
// The checker verifies that the endpoint is never the address of a host outside the
// cluster, that it moves only for a reason, that the endpoints of other clusters stay
// unchanged, and that in the end everything names one endpoint and no Machine waits while a
// host is free for it. The same seed repeats the same events.
//
// TestEndpointFollowsItsCluster runs a few long histories against a real API server.
// TestRandomHistories runs many short ones against objects in memory, which is fifty times
// as fast: 10 in `make test`, 100 in `make test-long`, any number with RANDOM_HISTORIES, others with RANDOM_SEED.
// They also have holds, cordons, maintenance, and selectors of hosts.
// TestCheckerFindsViolations breaks each rule on purpose.
//
// The agents here are a model written for this package, not the virtual hosts of
// test/harness/fleet. Those run the real agent: goroutines, TLS connections and the
// real clock. This suite needs hours of simulated time in seconds, one goroutine that
// decides the order of all steps, and the same history for the same seed. The model
// has only what failover depends on: probes, reports, kubeconfigs and the published
// endpoint. The real agent's part in failover is tested in internal/agent/endpoint, in
// test/harness/simulator and, on real hosts, in test/suite/e2e.
package endpoint

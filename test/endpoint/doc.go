// Package endpoint tests that an endpoint which is a host's address follows its
// cluster: a simulation of a fleet lives through fifty moves while hosts die and
// come back, agents are cut off, messages are lost, late or repeated, Machines are
// deleted, addresses change, clocks jump, and managers crash in the middle of a
// write or write on from stale caches after they were deposed.
//
// What is real: the API server, the reconciler of ElementalClusters, and the plans
// that hosts are told. What is simulated, on one clock that the test turns: hosts
// with their agents and network, the workload clusters, Cluster API with
// KubeadmControlPlane, and the cache of each manager.
//
// Whatever happens, a referee sees to it that the endpoint is never the address
// of a host outside the cluster, that it moves by evidence only, that nobody else's
// endpoint is touched, and that in the end everything names one endpoint. A seed
// makes the same events happen again.
package endpoint

// Package gateway tests the gateway for users between two real kube-apiservers, that of a
// management cluster and that of a workload cluster, with a tunnel between them. A stand-in
// for a kubelet ends sessions, because only API servers run.
package gateway

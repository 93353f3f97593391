// Package node gives the Node that this host became its providerID, from the
// host's side: with the kubelet's own credential, against the API server that
// the kubelet uses. So the manager needs no way into the workload cluster, and
// users' templates need no knowledge of the host.
//
// That takes two requests.
package node

// Package endpoint provides a control plane endpoint that is the address of a host. The
// ElementalCluster reconciler calls it for clusters without another endpoint.
//
// Control-plane providers such as KubeadmControlPlane create no Machine before the
// endpoint is known, so there is no bootstrapped host to take the address of. A free
// host is reserved instead, by the constraints of the control plane's machine template,
// and its address published. The first control-plane Machine then claims that host.
//
// The choice is written to the ElementalCluster before the host is reserved. After a
// crash between the two writes the next reconcile reserves the host.
//
// Once a control-plane Machine has claimed the host, package failover decides where the
// endpoint belongs. A move is one compare-and-swap on the ElementalCluster. All that
// follows from it (the Cluster, kubeconfigs, outdated Machines, hooks) is derived from
// spec and repeated until nothing is left to do.
//
// The package writes only spec of the ElementalCluster. It changes status.endpoint in
// memory, and returns an Outcome for the conditions.
package endpoint

// Package endpoint applies the control plane endpoint of a cluster to a host of
// that cluster. The agent calls an Applier whenever its plan or the host may
// have changed, and the reset calls it to remove what it created:
//
//   - kubeconfigs of the host that name a former endpoint name the current one,
//     and the kubelet uses it (package nodeconfig)
//   - on the host whose API server is the endpoint, the objects of the workload
//     cluster that new nodes, kubeadm and kube-proxy read name the current
//     endpoint too (package publish)
//   - the host rejects connections to a former endpoint that was its own, so
//     that clients reconnect to the current one (package reject)
//   - the host serves the endpoint itself, if it is a local one (package local)
//   - static Pods such as kube-vip's are written and removed
//   - a virtual address that kube-vip left on an interface is removed
//   - the redirection of an upgrade that did not end is removed by the reset
//     (package redirect)
//
// The package changes only what names a former endpoint. Before it creates
// anything that must be removed later, or makes a restart of the kubelet
// necessary, it records that on disk. After a kill or a power cut, the next call
// finishes what was begun. It must not probe endpoints or talk to the manager.
package endpoint

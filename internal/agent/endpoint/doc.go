// Package endpoint does on a host what the control plane endpoint of its
// cluster asks for, as often as need be:
//
//   - follow: the kubeconfigs of the host that name a former endpoint name the
//     endpoint, and the kubelet runs with it
//   - publish: so do the objects of the workload cluster that new nodes, kubeadm
//     and kube-proxy read, on the host whose API server is the endpoint
//   - reject: the host refuses connections to the former endpoint that was its
//     own, so that clients let go of it
//   - files: static Pods such as kube-vip's are there, and go again
//   - VIP: an address that kube-vip left on an interface is taken off
//
// Only what names a former endpoint is ever changed. What is to be taken back
// one day, and a restart of the kubelet that is due, is on disk before anything
// is done: a pass after a kill or a power cut finishes what was begun.
package endpoint

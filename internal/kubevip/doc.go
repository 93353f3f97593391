// Package kubevip renders the manifest of kube-vip, a static Pod that keeps a cluster's
// virtual IP address on one of its control-plane hosts. Package plan sends the manifest to
// the hosts; the controllers ask which hosts can carry the address. The package is pure:
// the same objects give the same manifest.
//
// kube-vip's own generator writes the Pod. Fields that it can't set (image, type of the
// credential's volume, priority) are set here (docs/adr/0027-kube-vip.md).
package kubevip

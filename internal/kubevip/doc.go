// Package kubevip renders the static Pod of kube-vip that keeps a cluster's
// virtual IP address on one of its control-plane hosts. It is pure: the same
// objects give the same file.
//
// kube-vip's own generator knows the names of its settings and writes the Pod;
// what it leaves to a person with an editor is set here: image, type of the
// credential's volume, priority (docs/adr/0027-kube-vip.md).
package kubevip

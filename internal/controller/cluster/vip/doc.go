// Package vip provides a control plane endpoint that is a virtual IP address. The
// ElementalCluster reconciler calls it for endpoints of type VIP. It claims the address
// from an IP pool where spec names one, and publishes it once hosts can have it and
// nobody else uses it. kube-vip on the control-plane hosts announces the address; package
// kubevip renders its manifest.
//
// The package writes status.virtualIP, which says that the cluster has the address, and no
// conditions; it returns the outcome.
package vip

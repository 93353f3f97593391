// Package redirect redirects connections that come from outside to the control plane
// endpoint, which is an address of this host, to the API server of another host, while this
// host's own one is replaced. Package nodeupgrade calls it.
//
// It uses one nftables table, which it replaces and deletes as a whole. What the host itself
// sends is never affected: its agent, kubelet, kubeadm and static Pods use the host's own API
// server. Neither are connections that another table has translated already, such as those
// of Pods of this host to the Service kubernetes.
package redirect

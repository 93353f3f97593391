// Package nodeconfig finds the kubeconfigs of a node, and the configurations of
// k3s and RKE2, that name a former endpoint, and writes them with the current
// one. Package endpoint calls it; it restarts nothing.
package nodeconfig

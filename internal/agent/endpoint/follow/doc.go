// Package follow finds the kubeconfigs of a node that name a former endpoint,
// and the configurations of k3s and RKE2, and writes them anew.
package follow

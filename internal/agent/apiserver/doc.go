// Package apiserver finds the API server of this host: its address and port, from the
// files of kubeadm, RKE2 and k3s. The API server need not run.
package apiserver

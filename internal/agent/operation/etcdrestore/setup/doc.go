// Package setup sets up the control plane of a host again that has lost the files of Kubernetes.
//
// The manager serves the bootstrap data of the host's Machine once more, of which only the files
// are written: its commands would join a cluster that does not serve. The phases of kubeadm init
// make what kubeadm init or join had made on this host, with the certificate authorities among
// these files.
package setup

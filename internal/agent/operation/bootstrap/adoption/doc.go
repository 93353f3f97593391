// Package adoption checks the Node of kubeadm that runs on a host, before Cluster API takes it
// over. It reads files of the host, and asks its etcd and the API server of its cluster by the
// credentials that kubeadm has left. It changes nothing.
package adoption

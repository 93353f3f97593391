// Package objects builds the objects that kubeadm and kubelets create in a workload cluster, as
// far as Cluster API's core and kubeadm control-plane provider, this provider's agent and users
// read them. It does no I/O.
package objects

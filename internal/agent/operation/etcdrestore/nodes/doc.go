// Package nodes deletes Nodes that the data of a restored etcd has although their hosts no longer
// belong to the cluster: their Machines were deleted after the snapshot.
//
// It uses the API server of this host, and the credentials of an administrator that kubeadm has
// written there: a kubelet may not delete other Nodes.
package nodes

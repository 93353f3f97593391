// Package checkpoint keeps what an upgrade of Kubernetes may have to put back: the files of
// kubeadm and the kubelet, the programs, and a snapshot of etcd.
//
// A checkpoint is a folder in the agent's state directory that only root can read, because
// it has the keys of the cluster:
//
//	files/…     the files, by their paths on the host
//	etcd.db     the snapshot, if the host has a member
//	index.json  which files there are; written last, so a checkpoint with it is complete
package checkpoint

// Package embedded runs a management cluster as plain processes on the loopback: etcd, kube-apiserver,
// kube-controller-manager, Cluster API's core, kubeadm bootstrap and kubeadm control-plane managers, and this
// provider's. It needs no root, no container engine and no network.
//
//	cluster, err := embedded.Start(ctx, embedded.Options{Progress: os.Stderr})
//	...
//	defer cluster.Stop()
//
// Kinds, roles and webhooks are those that clusterctl installs, rendered from the same sources, and every manager has
// the rights of its ServiceAccount and no others. What differs: webhooks are called at an address rather than through a
// Service, and their certificates come from the cluster's own authority rather than from cert-manager; managers elect
// no leader unless there are several of this provider's; no Node, no scheduler, no Pod. Of kube-controller-manager only
// the collector of garbage and what empties namespaces and aggregates roles run.
//
// A cluster is a unit: its data, credentials and logs are in one folder that only its user may read, and when a process
// ends by itself the others are stopped and Err says which it was and what it wrote last. Should this process die, the
// kernel kills them all (package process). All ports are chosen at the start and kept for the cluster (package ports),
// so that any number of clusters can run side by side.
//
// The programs are those of test/tools, built when they aren't in its cache.
package embedded

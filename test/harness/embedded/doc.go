// Package embedded runs a management cluster as plain processes on loopback: etcd, kube-apiserver,
// kube-controller-manager, Cluster API's core, kubeadm bootstrap and kubeadm control-plane managers, and this
// provider's. It needs no root, no container engine and no network.
//
//	cluster, err := embedded.Start(ctx, embedded.Options{Progress: os.Stderr})
//	...
//	defer cluster.Stop()
//
// Kinds, roles and webhooks are those that clusterctl installs, rendered from the same sources. Every manager has only
// the rights of its ServiceAccount. Differences from an installation by clusterctl:
//
//   - Webhooks are called at an address instead of through a Service. Their certificates come from the cluster's own
//     authority instead of cert-manager.
//   - Managers elect no leader, unless there are several managers of this provider.
//   - There are no Nodes, no scheduler and no Pods.
//   - There is no DNS and no Service has an address. Cluster API's managers reach the gateway of this provider's through a
//     proxy, which looks up names of Services in the API server (package names).
//   - kube-controller-manager runs garbage collection, namespace deletion and aggregation of roles only.
//
// Data, credentials and logs of a cluster are in one folder that only its user may read. When one process ends, all
// others are stopped, and Err returns the name of the process and the end of its log. If the calling process dies, the
// kernel kills the processes of the cluster (package process). All ports are reserved at the start (package ports), so
// any number of clusters can run at the same time.
//
// The programs come from test/tools, which builds those that are not in its cache.
package embedded

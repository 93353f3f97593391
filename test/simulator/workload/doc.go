// Package workload has workload clusters in memory, and the virtual kubeadm that makes virtual hosts
// (test/fleet) their members: Clusters is a fleet.Software.
//
// Bootstrap data is read as the agent reads it. What kubeadm init and kubeadm join would do with it is done as
// far as somebody looks: files below the host's root that the agent reads, objects in the cluster that Cluster
// API reads, and on every control-plane host an API server and an etcd member, at the host's own address with
// certificates of its own. The objects are in Cluster API's in-memory API server and etcd, which have no
// addresses of their own here.
//
// Joins go over the network: a cluster is found through its endpoint, or not at all. A host without power or
// network serves nobody; the cluster goes on while a majority of its etcd members runs, and answers nothing
// otherwise. A Node whose kubelet does not reach an API server, by the address in its kubeconfig, becomes
// Unknown after a while, and the etcd leader is always a member that runs.
//
// Not simulated: all that bootstrap data asks for beside kubeadm, networks of Pods, scheduling, authorization
// (but a client has to have a certificate of the cluster's or a bootstrap token), admission, and what
// Cluster API's server lacks: server-side apply, most kinds.
package workload

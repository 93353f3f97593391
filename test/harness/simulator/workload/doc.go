// Package workload runs workload clusters in memory, and a simulated kubeadm that makes virtual hosts
// (test/harness/fleet) their nodes: Clusters is a fleet.Software.
//
// Bootstrap data is parsed by the agent's own parser. kubeadm init and kubeadm join are simulated as far as other programs
// depend on them: the files below the host's root that the agent reads, the objects that Cluster API reads, and on every
// control-plane host an API server and an etcd member, at the host's own address with its own certificates. The objects
// are in Cluster API's in-memory API server and etcd, which have no addresses of their own here.
//
// Joins go over the network, through the endpoint of the cluster. A host without power or network serves no requests. The
// cluster works while a majority of its etcd members runs, otherwise its API servers fail. A Node becomes Unknown when
// its kubelet does not reach an API server at the address in its kubeconfig, or at the name, which leads through the host's own
// forwarder. With Options.Site API servers are at a site behind NAT. The etcd leader is always a running member.
//
// An upgrade of Kubernetes in place replaces the static Pods and the kubelet's version, and restarts the servers of a
// control-plane host. It fails on a host that is out of turn.
//
// Not simulated are commands of the bootstrap data other than kubeadm, Pod networks, scheduling, authorization (but
// clients are authenticated by certificate or bootstrap token), admission, and features that Cluster API's in-memory
// server lacks: server-side apply and most kinds.
package workload

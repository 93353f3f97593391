// Package cluster is what an upgrade asks of the host's cluster, by the credential of the
// host's kubelet: its Node, the Pods on it, and whether the API server of the host and the
// kubelet are well.
//
// A kubelet may read Nodes, list the Pods of its own Node, evict them, and set
// spec.unschedulable of its own Node (the roles of system:node, and the admission plugin
// NodeRestriction). So the manager needs no access to the workload cluster.
package cluster

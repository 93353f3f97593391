// Package access keeps the ClusterRoleBindings of spec.access in workload clusters: it
// creates them, puts back those that somebody has edited or deleted there, and deletes those
// that spec no longer has. It writes the condition AccessReady of ElementalClusters and
// nothing else in the management cluster.
//
// Nothing is watched in workload clusters. One that can be reached is looked at once a
// minute, by a list of the provider's own bindings; one that can't costs nothing until its
// condition TunnelReady changes.
package access

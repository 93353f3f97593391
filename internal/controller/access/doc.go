// Package access keeps the ClusterRoleBindings of spec.access in workload clusters: it
// creates them, puts back those that somebody has edited or deleted there, and deletes those
// that spec no longer has. In the management cluster it writes the condition AccessReady of
// ElementalClusters, and an annotation on those whose workload clusters may have bindings: the
// condition is lost in a move or a restore, and the bindings would stay.
//
// Nothing is watched in workload clusters. One that can be reached is looked at once a
// minute, by a list of the provider's own bindings; one that can't costs nothing until its
// condition TunnelReady changes.
package access

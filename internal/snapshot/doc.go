// Package snapshot decides when a snapshot of a cluster's etcd is due and which host takes
// it. It is pure: from objects and a time to a decision. The controller of ElementalClusters
// records the decision in spec.etcdSnapshotRecord, from which the plans of hosts follow.
package snapshot

// Package snapshotupload reconciles what is at the destination of the snapshots of an
// ElementalCluster: it lists the snapshots there in status.etcdSnapshots, removes those that
// the retention does not keep, and derives the condition EtcdSnapshotsUploaded.
//
// Hosts upload; what they say decides nothing. A slow or unreachable destination delays
// nothing but this reconciler.
package snapshotupload

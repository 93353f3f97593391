// Package snapshotupload reconciles what is at the destination of the snapshots of an
// ElementalCluster: it lists the snapshots there in status.etcdSnapshots, removes those that
// the retention does not keep, and derives the condition EtcdSnapshotsUploaded.
//
// Hosts upload. A bucket is read by the manager, so what hosts say decides nothing there. A folder
// is on hosts, so the list is what they have reported, and they remove old snapshots. A slow or
// unreachable destination delays nothing but this reconciler.
package snapshotupload

// Package snapshotgrant permits hosts to upload snapshots of etcd: one object of one size, for
// a short time. Hosts get no credentials of the destination.
package snapshotgrant

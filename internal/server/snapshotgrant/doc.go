// Package snapshotgrant permits hosts to upload snapshots of etcd, and to download the one that a
// person has confirmed for a restore: one object of one size, for a short time. Hosts get no
// credentials of the destination, and of keys only that of the one object.
package snapshotgrant

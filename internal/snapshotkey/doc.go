// Package snapshotkey finds the key of one uploaded snapshot of etcd, for the host that
// restores it.
//
// An object is encrypted with a random file key, which its header has for each recipient. The
// manager unwraps it with the identity that a person has put into a Secret, so the identity
// never leaves the manager. Before anybody gets the file key, the object must have the seal of
// the cluster (see package internal/bucket), and say of itself, in the first encrypted chunk,
// that it is this snapshot of this cluster. So the object of another cluster, which somebody
// has copied into the folder, does not give away its key.
package snapshotkey

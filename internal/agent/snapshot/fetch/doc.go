// Package fetch downloads an uploaded snapshot of etcd for a restore: the reverse of package
// upload.
//
// The manager permits one download, and gives the key of that object. The agent decrypts the
// object while it reads it, so neither the encrypted object nor its key gets onto the disk.
// Whoever can write into the bucket can make an object for the recipients of the cluster, so
// the object counts only if the snapshot has the SHA-256 that a person has confirmed.
package fetch

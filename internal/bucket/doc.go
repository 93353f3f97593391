// Package bucket accesses the objects of a cluster at the destination of its snapshots, a
// bucket with the API of Amazon S3.
//
// All objects of a cluster are in one folder, and the package lists, permits and removes
// nothing else:
//
//	PREFIX/AUTHORITY/ID.HOST.tar.age
//
// AUTHORITY stands for the certificate authority of etcd, as in package
// internal/agent/snapshot: no two clusters share it, and it stays when the cluster moves to
// another management cluster.
package bucket

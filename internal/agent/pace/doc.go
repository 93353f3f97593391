// Package pace slows down work on large files, so that what else runs on the host is hardly delayed:
// above all etcd, which waits for the same disk with each write.
package pace

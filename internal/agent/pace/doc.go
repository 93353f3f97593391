// Package pace slows down work on large files, so that it delays other programs on the
// host less: above all etcd, which waits for the same disk with each write.
package pace

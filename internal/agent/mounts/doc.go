// Package mounts reads the host's mount points. Its callers use them so that they
// delete nothing through a mount.
package mounts

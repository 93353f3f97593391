// Package storage partitions disks, makes file systems and mounts them, as
// cloud-init's disk_setup, fs_setup and mounts do. What to do with a device is
// decided once and recorded, because a half-written partition table looks like one
// that is in use.
package storage

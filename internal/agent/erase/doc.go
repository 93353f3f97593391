// Package erase erases a host's data disks after a reset, and proves it by
// reading back.
//
// Erased are all whole disks but those that hold the operating system: any disk
// that, directly or through partitions, device mapper, md or btrfs, backs a
// mounted file system or swap. What a node had mounted is gone by then, because
// the reset unmounts it. Read-only and removable media are kept too. Every disk
// is opened exclusively, so that the kernel itself refuses one that is in use
// after all.
//
// A mapping on top of a data disk that nothing uses, such as the logical volume
// of a storage daemon that was reset, is taken down first; where that fails the
// disk is Failed and the message names what holds it.
//
// Zero has the kernel write zeros (BLKZEROOUT), or writes them. Discard tells the
// disk to forget (BLKSECDISCARD, else BLKDISCARD). Either is checked by samples
// from the device; a disk that gives back data after a discard is zeroed. None of
// that reaches sectors that a disk has remapped, or copies that flash keeps
// aside: https://csrc.nist.gov/pubs/sp/800/88/r1/final calls it Clear, not Purge.
package erase

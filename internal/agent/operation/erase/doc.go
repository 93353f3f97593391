// Package erase erases a host's data disks after a reset, and checks this by
// reading samples back.
//
// It erases every whole disk that backs no mounted file system and no swap,
// directly or through partitions, device mapper, md or btrfs. The reset has
// unmounted the node's file systems before. Read-only and removable disks are kept
// too. Every disk is opened exclusively, so the kernel refuses to open a disk that
// is in use.
//
// An unused mapping on top of a data disk, such as the logical volume of a storage
// daemon that was reset, is removed first. If that fails, the disk is Failed and
// the message names the mapping.
//
// Zero asks the kernel to write zeros (BLKZEROOUT), or else writes them itself.
// Discard asks the disk to discard its content (BLKSECDISCARD, else BLKDISCARD).
// Samples are read back after both; a disk that still returns data after a discard
// is zeroed. Neither method reaches remapped sectors or spare flash cells:
// https://csrc.nist.gov/pubs/sp/800/88/r1/final calls this Clear, not Purge.
package erase

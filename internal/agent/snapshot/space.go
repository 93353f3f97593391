package snapshot

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// DiskSpace returns how many bytes are free and in all on the disk of a folder. Blocks that
// the file system reserves for root are not free.
func DiskSpace(folder string) (free, total int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return 0, 0, fmt.Errorf("looking for free space below %s: %w", folder, err)
	}
	size := uint64(max(stat.Bsize, 0))
	return int64(min(stat.Bavail*size, math.MaxInt64)), int64(min(stat.Blocks*size, math.MaxInt64)), nil
}

package pace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// step is by how much a file shrinks at a time, in bytes.
	step = 16 << 20
	// shrinkBudget bounds all pauses while a file shrinks.
	shrinkBudget = 30 * time.Second
)

// errInUse is the error of Shrink for a file that somebody reads.
var errInUse = errors.New("the file is in use")

// Shrink empties a file step by step, before it is removed: some file systems take long to free a
// large file, and other files wait meanwhile. It does nothing to a small file, nor to one that is open
// elsewhere, which stays readable when it is removed. After any other error the content may be lost.
func Shrink(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening a file to shrink it: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("looking at a file to shrink it: %w", err)
	}
	if info.Size() <= step {
		return nil
	}
	if !isUnused(f) {
		return errInUse
	}
	p := newPauses(ctx, shrinkBudget)
	for size := info.Size() - step; size > 0; size -= step {
		if err := f.Truncate(size); err != nil {
			return fmt.Errorf("shrinking a file: %w", err)
		}
		// The file system frees space when it commits.
		if err := f.Sync(); err != nil {
			return fmt.Errorf("shrinking a file: %w", err)
		}
		if err := p.pause(); err != nil {
			return err
		}
	}
	return nil
}

// isUnused reports whether nobody else has a file open: only then does the kernel grant a lease for
// writing (fcntl(2)). A file system without leases can't tell.
func isUnused(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

package download

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// Disk has the file operations of a download. The error for a missing file is
// fs.ErrNotExist.
type Disk interface {
	// Create opens a file for writing, and truncates the file at from, where writing
	// begins. A new file has mode 0600; a missing folder is made.
	Create(path string, from int64) (File, error)
	// Size returns the size of a file in bytes.
	Size(path string) (int64, error)
	Remove(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(folder string) error
	// Free returns how many bytes can be written below an existing folder.
	Free(folder string) (int64, error)
}

// File is a file that is being written. Sync makes its content durable.
type File interface {
	io.WriteCloser
	Chmod(mode os.FileMode) error
	Sync() error
}

// System is the Disk of this machine.
type System struct{}

// Create opens a file for writing.
func (System) Create(path string, from int64) (File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = f.Truncate(from); err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("going to offset %d of %s: %w", from, path, err), f.Close())
	}
	return f, nil
}

// Size returns the size of a file in bytes.
func (System) Size(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Remove removes a file.
func (System) Remove(path string) error { return os.Remove(path) }

// SyncDir makes the names in a folder durable.
func (System) SyncDir(folder string) error { return durable.SyncDir(folder) }

// Free does not count the blocks that the file system reserves for root.
func (System) Free(folder string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return 0, fmt.Errorf("looking for free space below %s: %w", folder, err)
	}
	free := stat.Bavail * uint64(max(stat.Bsize, 0))
	return int64(min(free, math.MaxInt64)), nil
}

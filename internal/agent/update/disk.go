package update

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
)

// Disk has the file operations of an update. Sync makes a file's content durable,
// SyncDir the names in a folder. The error for a missing file is fs.ErrNotExist.
type Disk interface {
	download.Disk
	Open(path string) (io.ReadCloser, error)
	// Rename replaces the file at to by the one at from, atomically.
	Rename(from, to string) error
	// Writable returns an error if files in a folder cannot be replaced.
	Writable(folder string) error
}

// File is a file that is being written.
type File = download.File

// System is the Disk of this machine.
type System struct{ download.System }

// Open opens a file for reading.
func (System) Open(path string) (io.ReadCloser, error) { return os.Open(path) }

// Rename replaces a file.
func (System) Rename(from, to string) error { return os.Rename(from, to) }

// Writable also returns an error for a file system that is mounted read-only.
func (System) Writable(folder string) error {
	if err := unix.Access(folder, unix.W_OK); err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	return nil
}

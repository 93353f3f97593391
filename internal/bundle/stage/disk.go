package stage

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// disk has the file operations of this package.
type disk interface {
	durable.System
	// Open opens a file for reading. It does not follow a link, and does not wait for the
	// other end of a pipe.
	Open(path string) (fs.File, error)
}

// system is the disk of this machine.
type system struct{ durable.OS }

// Open opens a file.
func (system) Open(path string) (fs.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

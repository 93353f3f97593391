package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
)

// DefaultDir is where the agent keeps its state.
const DefaultDir = "/var/lib/elemental/agent"

// Files keeps named documents. A name is a relative path with slashes.
type Files interface {
	// Read returns an error that is fs.ErrNotExist for a name never written.
	Read(name string) ([]byte, error)
	// Write replaces a document; it is durable when Write returns.
	Write(name string, data []byte) error
	// Remove deletes a document or a folder of documents, if it is there.
	Remove(name string) error
}

// Dir is Files in a directory that only root may enter.
type Dir struct{ path string }

// NewDir makes the directory if need be.
func NewDir(path string) (*Dir, error) {
	if err := mkdirDurable(path); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a directory has to be entered
		return nil, fmt.Errorf("closing the state directory to others: %w", err)
	}
	return &Dir{path: path}, nil
}

// Path is where a document is, for people and for those who need a real file.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// Lock keeps a second agent away from the directory until the process ends or
// the returned function is called.
func (d *Dir) Lock() (unlock func() error, err error) {
	f, err := os.OpenFile(d.Path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another elemental-agent uses %s: stop it first (systemctl stop elemental-agent)", d.path)
		}
		return nil, fmt.Errorf("locking %s: %w", d.path, err)
	}
	return f.Close, nil
}

// Read reads a document.
func (d *Dir) Read(name string) ([]byte, error) { return os.ReadFile(d.Path(name)) }

// Write replaces a document atomically and durably.
func (d *Dir) Write(name string, data []byte) error {
	path := d.Path(name)
	if err := mkdirDurable(filepath.Dir(path)); err != nil {
		return fmt.Errorf("making a folder for %s: %w", path, err)
	}
	return durable.WriteFile(path, data, 0o600)
}

// Remove deletes a document or a folder. The content of files is overwritten
// first, because bootstrap data holds secrets; on a file system that copies on
// write, or on flash, that is no guarantee.
func (d *Dir) Remove(name string) error {
	path := d.Path(name)
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			return overwrite(file)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shredding %s: %w", path, err)
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return durable.SyncDir(filepath.Dir(path))
}

func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(make([]byte, info.Size()))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// mkdirDurable makes a directory and those above it, and synchronises the
// parent of each one made.
func mkdirDurable(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := mkdirDurable(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

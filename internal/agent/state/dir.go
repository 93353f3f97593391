package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// DefaultDir is where the agent keeps its state.
const DefaultDir = "/var/lib/elemental/agent"

// Files stores named documents. A name is a relative path with slashes.
type Files interface {
	// Read returns fs.ErrNotExist for a name that was never written.
	Read(name string) ([]byte, error)
	// Write replaces a document; it is durable when Write returns.
	Write(name string, data []byte) error
	// Remove deletes a document or a folder of documents, if it is there.
	Remove(name string) error
}

// Dir implements Files in a directory that only root can read.
type Dir struct {
	path   string
	system durable.System

	removing sync.Mutex
}

// NewDir creates the directory if it does not exist.
func NewDir(path string) (*Dir, error) {
	d, err := OpenDir(path, durable.OS{})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a directory has to be entered
		return nil, fmt.Errorf("closing the state directory to others: %w", err)
	}
	return d, nil
}

// OpenDir is NewDir on any System, and does not change the directory's mode.
//
// It syncs all directories first. An agent that was killed may have renamed a document
// without syncing its directory. This agent must not act on a document that a power cut
// can still revert.
func OpenDir(path string, system durable.System) (*Dir, error) {
	d := &Dir{path: path, system: system}
	if err := d.mkdir(path); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	_, dirs, err := system.Walk(path)
	if err != nil {
		return nil, fmt.Errorf("looking through the state directory: %w", err)
	}
	for _, dir := range dirs {
		if err := system.SyncDir(dir); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Path returns the path of a document, for messages and for programs that need a file.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// Lock locks the directory against other agents until the process ends or unlock is
// called.
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
	// Finish a removal that a power cut interrupted.
	if err := d.shred(d.Path(removedDir)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// Read reads a document.
func (d *Dir) Read(name string) ([]byte, error) { return d.system.ReadFile(d.Path(name)) }

// Write replaces a document atomically and durably.
func (d *Dir) Write(name string, data []byte) error {
	path := d.Path(name)
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("making a folder for %s: %w", path, err)
	}
	return durable.Replace(d.system, path, data, func(f durable.File) error { return f.Chmod(0o600) })
}

// overwriteStep is how much of a file is overwritten at once, in bytes.
const overwriteStep = 1 << 20

// removedDir has the documents that are being removed. So a removal that a power cut
// interrupts leaves no partial document.
const removedDir = "removed"

// Remove deletes a document or a folder. The content of files is overwritten
// first, because bootstrap data holds secrets; on a file system that copies on
// write, or on flash, that is no guarantee.
func (d *Dir) Remove(name string) error {
	d.removing.Lock()
	defer d.removing.Unlock()
	removed := d.Path(removedDir)
	// Finish an earlier removal.
	if err := d.shred(removed); err != nil {
		return err
	}
	path := d.Path(name)
	if err := d.system.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := d.system.Rename(path, removed); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if err := errors.Join(d.system.SyncDir(filepath.Dir(path)), d.system.SyncDir(d.path)); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return d.shred(removed)
}

func (d *Dir) shred(path string) error {
	if err := d.system.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files, _, err := d.system.Walk(path)
	for _, file := range files {
		err = errors.Join(err, d.overwrite(file))
	}
	if err != nil {
		return fmt.Errorf("shredding %s: %w", path, err)
	}
	if err := d.system.RemoveAll(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return d.system.SyncDir(filepath.Dir(path))
}

func (d *Dir) overwrite(path string) error {
	f, size, err := d.system.Overwrite(path)
	if err != nil {
		return err
	}
	// A file may be larger than the memory.
	zeros := make([]byte, min(size, overwriteStep))
	for written := int64(0); err == nil && written < size; written += int64(len(zeros)) {
		_, err = f.Write(zeros[:min(size-written, int64(len(zeros)))])
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// mkdir makes a directory and those above it, and synchronises the parent of
// each one made.
func (d *Dir) mkdir(path string) error {
	if err := d.system.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := d.system.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.system.SyncDir(filepath.Dir(path))
}

package endpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

var errDead = errors.New("the process is dead")

// disk is a disk on which the process dies at the operation numbered dieAt,
// before or after the operation took effect. A power cut also undoes the
// creations, renames and removals in directories that were not synced.
type disk struct {
	durable.System

	dieAt, done  int
	after, power bool
	dead         bool
	writes       int
	// full is a folder without free space.
	full     string
	unsynced []undo
	// owners are the user:group that files were given.
	owners map[string]string
	opened map[string]*handle
	// beforeAttributes is called with the temporary file before its attributes are
	// set.
	beforeAttributes func(path string)
}

type undo struct {
	dir  string
	back func()
}

func (d *disk) do(f func() error) error {
	if d.dead {
		return errDead
	}
	if d.done++; d.done == d.dieAt {
		if d.after {
			_ = f()
		}
		d.dead = true
		if d.power {
			for len(d.unsynced) > 0 {
				last := len(d.unsynced) - 1
				d.unsynced[last].back()
				d.unsynced = d.unsynced[:last]
			}
		}
		return errDead
	}
	return f()
}

// startProcess starts the next process.
func (d *disk) startProcess(dieAt int) { d.dieAt, d.done, d.dead, d.unsynced = dieAt, 0, false, nil }

func (d *disk) Create(path string) (durable.File, error) {
	var file durable.File
	err := d.do(func() error {
		d.writes++
		if d.full != "" && strings.HasPrefix(path, d.full) {
			return errors.New("no space left on device")
		}
		made, err := d.System.Create(path)
		if err != nil {
			return err
		}
		d.unsynced = append(d.unsynced, undo{filepath.Dir(path), func() { _ = os.Remove(path) }})
		h := &handle{File: made.(*os.File), disk: d, path: path}
		file, d.opened[path] = h, h
		return nil
	})
	return file, err
}

// handle is an open file.
type handle struct {
	*os.File

	disk        *disk
	path, owner string
}

func (h *handle) Chmod(mode fs.FileMode) error {
	if h.disk.beforeAttributes != nil {
		h.disk.beforeAttributes(h.path)
	}
	return h.File.Chmod(mode)
}

// Chown gives a file the owner that it has: only root could change it.
func (h *handle) Chown(uid, gid int) error {
	h.owner = fmt.Sprintf("%d:%d", uid, gid)
	return h.File.Chown(uid, gid)
}

// Sync only counts the operation: the test's machine keeps its power.
func (h *handle) Sync() error { return h.disk.do(func() error { return nil }) }

func (d *disk) Rename(from, to string) error {
	return d.do(func() error {
		d.writes++
		if h := d.opened[from]; h != nil {
			d.owners[filepath.Base(to)] = h.owner
		}
		before, err := os.ReadFile(to)
		existed := err == nil
		d.unsynced = append(d.unsynced, undo{filepath.Dir(to), func() {
			_ = os.Remove(to)
			if existed {
				_ = os.WriteFile(to, before, 0o600)
			}
		}})
		return d.System.Rename(from, to)
	})
}

func (d *disk) Remove(path string) error {
	return d.do(func() error {
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		d.writes++
		d.unsynced = append(d.unsynced, undo{filepath.Dir(path), func() { _ = os.WriteFile(path, before, 0o600) }})
		return d.System.Remove(path)
	})
}

func (d *disk) Mkdir(path string) error { return d.do(func() error { return d.System.Mkdir(path) }) }

func (d *disk) SyncDir(path string) error {
	return d.do(func() error {
		kept := d.unsynced[:0]
		for _, change := range d.unsynced {
			if change.dir != path {
				kept = append(kept, change)
			}
		}
		d.unsynced = kept
		return nil
	})
}

package nodeupgrade_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

var (
	errDead = errors.New("the process is dead")
	errFull = errors.New("no space left on device")
)

// disk is a disk of real files that knows what a power cut would undo: names until their
// folder is synced, contents until the file is.
type disk struct {
	durable.OS

	trash   string
	number  int
	pending []change
	// loose are the files whose content is not durable.
	loose  map[string]bool
	random *rand.Rand
	// full makes writes of a file fail.
	full func(path string) bool
}

// change is a change of names that is not durable.
type change struct {
	folders []string
	revert  func()
}

func (d *disk) change(revert func(), paths ...string) {
	folders := make([]string, 0, len(paths))
	for _, path := range paths {
		folders = append(folders, filepath.Dir(path))
	}
	d.pending = append(d.pending, change{folders, revert})
}

func (d *disk) discarded() string {
	d.number++
	return filepath.Join(d.trash, fmt.Sprint(d.number))
}

func (d *disk) Create(path string) (durable.File, error) {
	f, err := d.OS.Create(path)
	if err != nil {
		return nil, err
	}
	d.change(func() { _ = os.RemoveAll(path) }, path)
	d.loose[path] = true
	return &file{f, d, path}, nil
}

func (d *disk) Overwrite(path string) (durable.File, int64, error) {
	f, size, err := d.OS.Overwrite(path)
	if err != nil {
		return nil, 0, err
	}
	return &file{f, d, path}, size, nil
}

func (d *disk) Mkdir(path string) error {
	if err := d.OS.Mkdir(path); err != nil {
		return err
	}
	d.change(func() { _ = os.RemoveAll(path) }, path)
	return nil
}

func (d *disk) Rename(from, to string) error {
	old := d.discarded()
	replaced := os.Link(to, old) == nil
	if err := d.OS.Rename(from, to); err != nil {
		return err
	}
	d.change(func() {
		_ = os.Rename(to, from)
		if replaced {
			_ = os.Rename(old, to)
		}
	}, from, to)
	if d.loose[from] {
		d.loose[to] = true
	} else {
		delete(d.loose, to)
	}
	delete(d.loose, from)
	return nil
}

func (d *disk) Remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return d.RemoveAll(path)
}

func (d *disk) RemoveAll(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old := d.discarded()
	if err := os.Rename(path, old); err != nil {
		return err
	}
	d.change(func() { _ = os.Rename(old, path) }, path)
	return nil
}

// SyncDir makes the changes in a folder durable, with all changes before them: file systems
// have one journal.
func (d *disk) SyncDir(path string) error {
	for i, c := range slices.Backward(d.pending) {
		if slices.Contains(c.folders, path) {
			d.pending = d.pending[i+1:]
			break
		}
	}
	return d.OS.SyncDir(path)
}

// cutPower undoes a random end of the changes of names, and damages contents.
func (d *disk) cutPower() {
	kept := d.random.IntN(len(d.pending) + 1)
	for _, c := range slices.Backward(d.pending[kept:]) {
		c.revert()
	}
	d.pending = nil
	for path := range d.loose {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		switch d.random.IntN(3) {
		case 0:
			_ = os.Truncate(path, 0)
		case 1:
			_ = os.Truncate(path, info.Size()/2)
		}
	}
	d.loose = map[string]bool{}
}

type file struct {
	durable.File

	disk *disk
	path string
}

func (f *file) Write(data []byte) (int, error) {
	if f.disk.full != nil && f.disk.full(f.path) {
		return 0, errFull
	}
	f.disk.loose[f.path] = true
	return f.File.Write(data)
}

func (f *file) Sync() error {
	delete(f.disk.loose, f.path)
	return nil
}

// life is a process on the disk. It dies at one of its operations, which has taken effect or
// has not.
type life struct {
	*disk

	dieAt, done int
	dead        bool
	die         func()
}

// do makes an operation of the process.
func (l *life) do(f func() error) error {
	if l.dead {
		return errDead
	}
	if l.done++; l.done != l.dieAt {
		return f()
	}
	if l.random.IntN(2) == 0 {
		_ = f()
	}
	l.dead = true
	l.die()
	return errDead
}

func (l *life) Create(path string) (f durable.File, err error) {
	err = l.do(func() error {
		f, err = l.disk.Create(path)
		return err
	})
	return &lifeFile{f, l}, err
}

func (l *life) Overwrite(path string) (durable.File, int64, error) {
	f, size, err := l.disk.Overwrite(path)
	return &lifeFile{f, l}, size, err
}

func (l *life) Mkdir(path string) error { return l.do(func() error { return l.disk.Mkdir(path) }) }

func (l *life) Rename(from, to string) error {
	return l.do(func() error { return l.disk.Rename(from, to) })
}

func (l *life) Remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.do(func() error { return l.disk.Remove(path) })
}

func (l *life) RemoveAll(path string) error {
	return l.do(func() error { return l.disk.RemoveAll(path) })
}

func (l *life) SyncDir(path string) error {
	return l.do(func() error { return l.disk.SyncDir(path) })
}

type lifeFile struct {
	durable.File

	life *life
}

func (f *lifeFile) Write(data []byte) (n int, err error) {
	err = f.life.do(func() error {
		n, err = f.File.Write(data)
		return err
	})
	return n, err
}

func (f *lifeFile) Sync() error { return f.life.do(f.File.Sync) }

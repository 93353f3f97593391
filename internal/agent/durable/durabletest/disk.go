// Package durabletest has disks that lose power, for tests of what has to survive that.
package durabletest

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

// Errors of a process.
var (
	ErrDead = errors.New("the process is dead")
	ErrFull = errors.New("no space left on device")
)

// Disk is a disk of real files that knows what a power cut would undo: names until their
// folder is synced, contents until the file is.
type Disk struct {
	durable.OS

	trash   string
	number  int
	pending []change
	// loose are the files whose content is not durable.
	loose map[string]bool
	// Random decides what each power cut damages.
	Random *rand.Rand
	// Full makes writes of a file fail; nil: none fails.
	Full func(path string) bool
}

// NewDisk returns a disk. trash is a folder on the same file system for what a power cut may
// bring back.
func NewDisk(trash string, random *rand.Rand) *Disk {
	return &Disk{trash: trash, loose: map[string]bool{}, Random: random}
}

// change is a change of names that is not durable.
type change struct {
	folders []string
	revert  func()
}

func (d *Disk) change(revert func(), paths ...string) {
	folders := make([]string, 0, len(paths))
	for _, path := range paths {
		folders = append(folders, filepath.Dir(path))
	}
	d.pending = append(d.pending, change{folders, revert})
}

func (d *Disk) discarded() string {
	d.number++
	return filepath.Join(d.trash, fmt.Sprint(d.number))
}

// Create makes a file whose name is not durable yet.
func (d *Disk) Create(path string) (durable.File, error) {
	f, err := d.OS.Create(path)
	if err != nil {
		return nil, err
	}
	d.change(func() { _ = os.RemoveAll(path) }, path)
	d.loose[path] = true
	return &file{f, d, path}, nil
}

// Overwrite opens a file.
func (d *Disk) Overwrite(path string) (durable.File, int64, error) {
	f, size, err := d.OS.Overwrite(path)
	if err != nil {
		return nil, 0, err
	}
	return &file{f, d, path}, size, nil
}

// Mkdir makes a directory whose name is not durable yet.
func (d *Disk) Mkdir(path string) error {
	if err := d.OS.Mkdir(path); err != nil {
		return err
	}
	d.change(func() { _ = os.RemoveAll(path) }, path)
	return nil
}

// Rename moves a file, which a power cut may undo.
func (d *Disk) Rename(from, to string) error {
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

// Remove removes a file, which a power cut may undo.
func (d *Disk) Remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return d.RemoveAll(path)
}

// RemoveAll removes a file or directory, which a power cut may undo.
func (d *Disk) RemoveAll(path string) error {
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
// have one journal. It does not sync the real disk, because power cuts are simulated.
func (d *Disk) SyncDir(path string) error {
	for i, c := range slices.Backward(d.pending) {
		if slices.Contains(c.folders, path) {
			d.pending = d.pending[i+1:]
			break
		}
	}
	_, err := os.ReadDir(path) // the error of a folder that is not there
	return err
}

// Shutdown makes everything durable, as an orderly reboot does.
func (d *Disk) Shutdown() { d.pending, d.loose = nil, map[string]bool{} }

// CutPower undoes a random end of the changes of names, and damages contents.
func (d *Disk) CutPower() {
	kept := d.Random.IntN(len(d.pending) + 1)
	for _, c := range slices.Backward(d.pending[kept:]) {
		c.revert()
	}
	d.pending = nil
	for path := range d.loose {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		switch d.Random.IntN(3) {
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

	disk *Disk
	path string
}

func (f *file) Write(data []byte) (int, error) {
	if f.disk.Full != nil && f.disk.Full(f.path) {
		return 0, ErrFull
	}
	f.disk.loose[f.path] = true
	return f.File.Write(data)
}

func (f *file) Sync() error {
	delete(f.disk.loose, f.path)
	return nil
}

// Life is a process on the disk. It dies at one of its operations, which has taken effect or
// has not.
type Life struct {
	*Disk

	// DieAt is the number of the operation at which the process dies; 0: it does not. Done
	// counts operations.
	DieAt, Done int
	// Dead reports whether the process has died. Die is called when it does.
	Dead bool
	Die  func()
}

// Do makes an operation of the process.
func (l *Life) Do(f func() error) error {
	if l.Dead {
		return ErrDead
	}
	if l.Done++; l.Done != l.DieAt {
		return f()
	}
	if l.Random.IntN(2) == 0 {
		_ = f()
	}
	l.Dead = true
	l.Die()
	return ErrDead
}

// Create makes a file.
func (l *Life) Create(path string) (f durable.File, err error) {
	err = l.Do(func() error {
		f, err = l.Disk.Create(path)
		return err
	})
	return &lifeFile{f, l}, err
}

// Overwrite opens a file. It is no operation that the process can die at.
func (l *Life) Overwrite(path string) (durable.File, int64, error) {
	f, size, err := l.Disk.Overwrite(path)
	return &lifeFile{f, l}, size, err
}

// Mkdir makes a directory.
func (l *Life) Mkdir(path string) error { return l.Do(func() error { return l.Disk.Mkdir(path) }) }

// Rename moves a file.
func (l *Life) Rename(from, to string) error {
	return l.Do(func() error { return l.Disk.Rename(from, to) })
}

// Remove removes a file.
func (l *Life) Remove(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.Do(func() error { return l.Disk.Remove(path) })
}

// RemoveAll removes a file or directory.
func (l *Life) RemoveAll(path string) error {
	return l.Do(func() error { return l.Disk.RemoveAll(path) })
}

// SyncDir makes the names in a directory durable.
func (l *Life) SyncDir(path string) error {
	return l.Do(func() error { return l.Disk.SyncDir(path) })
}

type lifeFile struct {
	durable.File

	life *Life
}

func (f *lifeFile) Write(data []byte) (n int, err error) {
	err = f.life.Do(func() error {
		n, err = f.File.Write(data)
		return err
	})
	return n, err
}

func (f *lifeFile) Sync() error { return f.life.Do(f.File.Sync) }

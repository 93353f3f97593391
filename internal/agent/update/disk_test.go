package update_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
)

var errDead = errors.New("the host is dead")

// disk is a file system with power cuts. A power cut may lose any unsynced change of
// names. Unsynced content becomes the former content, the new content, or the beginning
// of the new content followed by zeros.
type disk struct {
	mu sync.Mutex
	// names has the files that processes see, durable those that survive a power cut.
	names, durable map[string]*inode
	pending        []rename
	// changes counts changes. The host crashes at change number dieAt, before or
	// after it takes effect.
	changes, dieAt int
	after, dead    bool
	readOnly       error
	free           int64
	// fullFor is a file that can't be written.
	fullFor string
}

type inode struct {
	data, synced []byte
	mode         os.FileMode
}

// rename is a change of names: a file gets one, or loses it.
type rename struct {
	from, to string
	file     *inode
}

func (r rename) apply(names map[string]*inode) {
	delete(names, r.from)
	if r.to != "" {
		names[r.to] = r.file
	}
}

func newDisk() *disk {
	return &disk{names: map[string]*inode{}, durable: map[string]*inode{}, dieAt: -1, free: 1 << 40}
}

// put stores a synced file.
func (d *disk) put(path, content string) {
	file := &inode{data: []byte(content), synced: []byte(content), mode: 0o755}
	d.names[path], d.durable[path] = file, file
}

func (d *disk) content(path string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if file := d.names[path]; file != nil {
		return string(file.data)
	}
	return ""
}

// revive restarts the host after a crash. A kill loses nothing.
func (d *disk) revive(powerCut bool, random *rand.Rand) {
	d.dead, d.dieAt = false, -1
	if !powerCut {
		return
	}
	for _, change := range d.pending {
		if random.IntN(3) > 0 {
			change.apply(d.durable)
		}
	}
	d.pending = nil
	for _, file := range d.durable {
		if bytes.Equal(file.data, file.synced) {
			continue
		}
		switch random.IntN(3) {
		case 0:
			file.data = slices.Clone(file.synced)
		case 1:
			kept := random.IntN(len(file.data) + 1)
			file.data = append(slices.Clone(file.data[:kept]), make([]byte, len(file.data)-kept)...)
		}
		file.synced = slices.Clone(file.data)
	}
	d.names = maps.Clone(d.durable)
}

func (d *disk) change(path string, f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errDead
	}
	if d.readOnly != nil && strings.HasPrefix(path, filepath.Dir(program)+"/") {
		return d.readOnly
	}
	if path == d.fullFor {
		return syscall.ENOSPC
	}
	d.changes++
	if d.changes != d.dieAt {
		return f()
	}
	if d.after {
		_ = f()
	}
	d.dead = true
	return errDead
}

func (d *disk) rename(r rename) {
	r.apply(d.names)
	d.pending = append(d.pending, r)
}

func (d *disk) look(path string) (*inode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, errDead
	}
	if file := d.names[path]; file != nil {
		return file, nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) Open(path string) (io.ReadCloser, error) {
	file, err := d.look(path)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(file.data)), nil
}

func (d *disk) Size(path string) (int64, error) {
	file, err := d.look(path)
	if err != nil {
		return 0, err
	}
	return int64(len(file.data)), nil
}

func (d *disk) Create(path string, from int64) (update.File, error) {
	var file *inode
	return handle{d, path, &file}, d.change(path, func() error {
		if file = d.names[path]; file == nil {
			file = &inode{mode: 0o600}
			d.rename(rename{to: path, file: file})
		}
		file.data = slices.Clone(file.data[:from])
		return nil
	})
}

func (d *disk) Rename(from, to string) error {
	return d.change(to, func() error {
		file := d.names[from]
		if file == nil {
			return fs.ErrNotExist
		}
		d.rename(rename{from: from, to: to, file: file})
		return nil
	})
}

func (d *disk) Remove(path string) error {
	return d.change(path, func() error {
		if d.names[path] == nil {
			return fs.ErrNotExist
		}
		d.rename(rename{from: path})
		return nil
	})
}

func (d *disk) SyncDir(folder string) error {
	return d.change(folder+"/", func() error {
		d.pending = slices.DeleteFunc(d.pending, func(r rename) bool {
			if filepath.Dir(r.from+r.to) != folder && filepath.Dir(r.to) != folder {
				return false
			}
			r.apply(d.durable)
			return true
		})
		return nil
	})
}

func (d *disk) Free(string) (int64, error) { return d.free, nil }

func (d *disk) Writable(string) error { return d.readOnly }

// handle is an open file.
type handle struct {
	disk *disk
	path string
	file **inode
}

func (h handle) Write(p []byte) (int, error) {
	return len(p), h.disk.change(h.path, func() error {
		(*h.file).data = append((*h.file).data, p...)
		return nil
	})
}

func (h handle) Chmod(mode os.FileMode) error {
	return h.disk.change(h.path, func() error {
		(*h.file).mode = mode
		return nil
	})
}

func (h handle) Sync() error {
	return h.disk.change(h.path, func() error {
		(*h.file).synced = slices.Clone((*h.file).data)
		return nil
	})
}

func (h handle) Close() error { return nil }

// documents implements state.Files on a disk with atomic, durable writes.
type documents struct{ disk *disk }

const documentFolder = "/state/"

func (f documents) Read(name string) ([]byte, error) {
	file, err := f.disk.look(documentFolder + name)
	if err != nil {
		return nil, err
	}
	return slices.Clone(file.data), nil
}

func (f documents) Write(name string, data []byte) error {
	return f.disk.change(documentFolder+name, func() error {
		f.disk.put(documentFolder+name, string(data))
		return nil
	})
}

func (f documents) Remove(name string) error {
	return f.disk.change(documentFolder+name, func() error {
		delete(f.disk.names, documentFolder+name)
		delete(f.disk.durable, documentFolder+name)
		return nil
	})
}

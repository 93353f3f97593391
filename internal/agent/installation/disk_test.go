package installation_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

var errPower = errors.New("the power is off")

// disk is a disk that loses its power at one of its operations, and what was not synced
// with it.
type disk struct {
	durable.OS

	// left is the number of operations until the power is lost; negative: never.
	left int
	// contents and names are what is not durable, by path.
	contents, names map[string]bool
	// links are links that were removed, which is not durable.
	links map[string]bool
	// moved has the former names, which are durable, of files whose new names are not.
	moved map[string]string
	// readOnly is a folder below which nothing can be written; blank for none.
	readOnly string
}

// IsReadOnly implements installation.Disk.
func (d *disk) IsReadOnly(folder string) bool {
	return d.readOnly != "" && (folder == d.readOnly || strings.HasPrefix(folder, d.readOnly+"/"))
}

// do makes an operation, unless the power is lost.
func (d *disk) do(f func() error) error {
	if d.left > 0 {
		d.left--
	}
	if d.left == 0 {
		return errPower
	}
	return f()
}

func (d *disk) Create(name string) (file durable.File, err error) {
	err = d.do(func() error {
		if d.IsReadOnly(path.Dir(name)) {
			return syscall.EROFS
		}
		made, err := d.OS.Create(name)
		file = &diskFile{made, d, name}
		d.contents[name], d.names[name] = true, true
		return err
	})
	return file, err
}

func (d *disk) Mkdir(name string) error {
	return d.do(func() error {
		d.names[name] = true
		return d.OS.Mkdir(name)
	})
}

func (d *disk) MakeFolder(name string) error {
	return d.do(func() error {
		if d.IsReadOnly(path.Dir(name)) {
			return syscall.EROFS
		}
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
		d.names[name] = true
		return nil
	})
}

func (d *disk) Rename(from, to string) error {
	return d.do(func() error {
		if d.contents[from] {
			d.contents[to] = true
		}
		if _, isNew := d.names[from]; !isNew {
			d.moved[to] = from
			return d.OS.Rename(from, to)
		}
		// A name that replaces another one may be either after a power cut: this model
		// keeps the new one, and package state is tested with all others.
		_, err := os.Stat(to)
		d.names[to] = err != nil
		delete(d.contents, from)
		delete(d.names, from)
		return d.OS.Rename(from, to)
	})
}

func (d *disk) Remove(name string) error { return d.do(func() error { return d.OS.Remove(name) }) }

func (d *disk) RemoveAll(name string) error {
	return d.do(func() error { return d.OS.RemoveAll(name) })
}

func (d *disk) SyncDir(folder string) error {
	return d.do(func() error {
		for _, undone := range []map[string]bool{d.names, d.links} {
			maps.DeleteFunc(undone, func(name string, _ bool) bool { return path.Dir(name) == folder })
		}
		maps.DeleteFunc(d.moved, func(name, _ string) bool { return path.Dir(name) == folder })
		return nil
	})
}

func (d *disk) Sync() {
	_ = d.do(func() error {
		clear(d.names)
		clear(d.contents)
		clear(d.links)
		clear(d.moved)
		return nil
	})
}

// lose is what the power cut does: contents that were not synced are truncated, and with
// names also what was not synced in a folder is missing.
func (d *disk) lose(t *testing.T, names bool) {
	t.Helper()
	for name := range d.contents {
		if info, err := os.Stat(name); err == nil {
			if err := os.Truncate(name, info.Size()/2); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range d.links {
		if !names {
			continue
		}
		if err := os.Symlink("/etc/systemd/system/"+path.Base(name), name); err != nil {
			t.Fatal(err)
		}
	}
	for name, is := range d.names {
		if !names || !is {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range d.moved {
		if !names {
			continue
		}
		if err := os.Rename(to, from); err != nil {
			t.Fatal(err)
		}
	}
}

type diskFile struct {
	durable.File

	disk *disk
	name string
}

func (f *diskFile) Write(data []byte) (n int, err error) {
	err = f.disk.do(func() error {
		n, err = f.File.Write(data)
		return err
	})
	return n, err
}

func (f *diskFile) Chmod(mode fs.FileMode) error {
	return f.disk.do(func() error { return f.File.Chmod(mode) })
}

func (f *diskFile) Sync() error {
	return f.disk.do(func() error {
		delete(f.disk.contents, f.name)
		return nil
	})
}

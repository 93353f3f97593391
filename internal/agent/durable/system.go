package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// System is the set of file operations. Their results survive a power cut only if
// the operations are called in the right order. Tests simulate power cuts with it.
type System interface {
	// Create makes a file, 0600, that must not exist.
	Create(path string) (File, error)
	// Overwrite opens a file for writing from its beginning and returns its size.
	Overwrite(path string) (f File, size int64, err error)
	ReadFile(path string) ([]byte, error)
	// Stat returns fs.ErrNotExist for a missing file.
	Stat(path string) error
	// Walk lists the files and directories below path, and path itself first.
	Walk(path string) (files, dirs []string, err error)
	Mkdir(path string) error
	Rename(from, to string) error
	Remove(path string) error
	RemoveAll(path string) error
	SyncDir(path string) error
}

// File is a file that is being written.
type File interface {
	Write(data []byte) (int, error)
	Chmod(mode fs.FileMode) error
	Sync() error
	Close() error
}

// OS is the real System.
type OS struct{}

// Create makes a file.
func (OS) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Overwrite opens a file.
func (OS) Overwrite(path string) (File, int64, error) {
	return sized(os.OpenFile(path, os.O_WRONLY, 0))
}

// sized returns a file that was opened, and its size.
func sized(f *os.File, err error) (File, int64, error) {
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// ReadFile reads a file.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Stat returns an error for a missing file.
func (OS) Stat(path string) error {
	_, err := os.Lstat(path)
	return err
}

// Walk lists what is below path. Links and devices are left out.
func (OS) Walk(path string) (files, dirs []string, err error) {
	return list(func(each fs.WalkDirFunc) error { return filepath.WalkDir(path, each) })
}

func list(walk func(fs.WalkDirFunc) error) (files, dirs []string, err error) {
	err = walk(func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			dirs = append(dirs, name)
		case entry.Type().IsRegular():
			files = append(files, name)
		}
		return nil
	})
	return files, dirs, err
}

// Mkdir makes a directory with the mode 0700.
func (OS) Mkdir(path string) error { return os.Mkdir(path, 0o700) }

// Rename moves a file or directory.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove removes a file.
func (OS) Remove(path string) error { return os.Remove(path) }

// RemoveAll removes a file, or a directory with its content.
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncDir makes the names in a directory durable.
func (OS) SyncDir(path string) error { return SyncDir(path) }

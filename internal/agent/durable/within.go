package durable

import (
	"io/fs"
	"os"
)

// Within is the System of what is in a folder. Paths are relative to the folder, and no link leads out
// of it, whoever makes one and when.
type Within struct{ *os.Root }

// Create makes a file.
func (w Within) Create(path string) (File, error) {
	return w.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Overwrite opens a file.
func (w Within) Overwrite(path string) (File, int64, error) {
	return sized(w.OpenFile(path, os.O_WRONLY, 0))
}

// Stat returns an error for a missing file.
func (w Within) Stat(path string) error {
	_, err := w.Lstat(path)
	return err
}

// Walk lists what is below path. Links and devices are left out.
func (w Within) Walk(path string) (files, dirs []string, err error) {
	return list(func(each fs.WalkDirFunc) error { return fs.WalkDir(w.FS(), path, each) })
}

// Mkdir makes a directory with the mode 0700.
func (w Within) Mkdir(path string) error { return w.Root.Mkdir(path, 0o700) }

// SyncDir makes the names in a directory durable.
func (w Within) SyncDir(path string) error { return syncDir(w.Open, path) }

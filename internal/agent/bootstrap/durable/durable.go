// Package durable writes files that are either there as a whole, also after a
// power cut, or not there at all.
package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path by data: a temporary file beside it is
// written, synced and renamed, and the directory is synced. The mode is set
// whatever the umask. A path that is a symbolic link is replaced, not followed.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return Write(path, data, func(f *os.File) error { return f.Chmod(mode) })
}

// Write is WriteFile with the attributes left to the caller: attributes is
// called with the temporary file, which is 0600 until then and holds data.
func Write(path string, data []byte, attributes func(*os.File) error) error {
	return Replace(OS{}, path, data, func(f File) error {
		if file, ok := f.(*os.File); ok {
			return attributes(file)
		}
		return nil
	})
}

// Replace is Write on any System.
func Replace(system System, path string, data []byte, attributes func(File) error) (err error) {
	temporary := Temporary(path)
	if err := ignoreMissing(system.Remove(temporary)); err != nil {
		return fmt.Errorf("removing what an interrupted write of %s left: %w", path, err)
	}
	f, err := system.Create(temporary)
	if err != nil {
		return fmt.Errorf("creating a temporary file for %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(f.Close()), ignoreMissing(system.Remove(temporary)))
		}
	}()
	if _, err = f.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err = attributes(f); err != nil {
		return fmt.Errorf("setting mode and owner of %s: %w", path, err)
	}
	if err = f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	if err = f.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", path, err)
	}
	if err = system.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return system.SyncDir(filepath.Dir(path))
}

// Temporary is the name that Write uses until a file at path is complete. It
// is always the same, so that repeating a write that a power cut ended leaves
// nothing behind.
func Temporary(path string) string {
	sum := sha256.Sum256([]byte(filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), ".elemental-"+hex.EncodeToString(sum[:8]))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening %s to sync it: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("syncing the directory %s: %w", dir, err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

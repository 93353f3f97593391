// Package durable writes files atomically: after a power cut a file has either its
// old or its new content. All of the agent uses it for files that must survive.
package durable

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path by data. It writes, syncs and renames a
// temporary file in the same directory, then syncs the directory. The umask does not
// affect the mode. A symbolic link at path is replaced, not followed.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return Write(path, data, func(f *os.File) error { return f.Chmod(mode) })
}

// Write is like WriteFile, but calls attributes to set the mode and owner of the
// temporary file, which has the mode 0600 until then.
func Write(path string, data []byte, attributes func(*os.File) error) error {
	return Replace(OS{}, path, data, func(f File) error {
		if file, ok := f.(*os.File); ok {
			return attributes(file)
		}
		return nil
	})
}

// Replace is like Write on any System.
func Replace(system System, path string, data []byte, attributes func(File) error) error {
	return Copy(system, path, bytes.NewReader(data), attributes)
}

// Copy is like Replace with content of any size. attributes is called when all of the
// content was read; its error leaves the file at path as it is.
func Copy(system System, path string, content io.Reader, attributes func(File) error) error {
	return Stream(system, path, func(f File) error {
		if _, err := io.Copy(f, content); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		if err := attributes(f); err != nil {
			return fmt.Errorf("setting mode and owner of %s: %w", path, err)
		}
		return nil
	})
}

// Stream is like Replace with content that write writes; its error leaves the file at path
// as it is. The file has the mode 0600 unless write changes that.
func Stream(system System, path string, write func(File) error) (err error) {
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
	if err := write(f); err != nil {
		return err
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

// Temporary returns the name that Write uses until the file at path is complete. It
// is always the same, so that repeating an interrupted write leaves no extra file.
func Temporary(path string) string {
	sum := sha256.Sum256([]byte(filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), ".elemental-"+hex.EncodeToString(sum[:8]))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error { return syncDir(os.Open, dir) }

func syncDir(open func(dir string) (*os.File, error), dir string) error {
	f, err := open(dir)
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

package apply

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ShredSecrets overwrites and removes the scripts of a finished operation and their
// environment. The results and outputs of scripts and the copies for Undo stay.
// ShredSecrets may be repeated.
func ShredSecrets(dir string) error {
	scripts, err := filepath.Glob(filepath.Join(dir, "scripts", "*"))
	errs := []error{err}
	for _, script := range scripts {
		for _, name := range []string{"script", "spec.json"} {
			errs = append(errs, shred(filepath.Join(script, name)))
		}
	}
	return errors.Join(errs...)
}

// shred overwrites a file, syncs and removes it. A missing file is no error. Old
// blocks may remain on flash and on copy-on-write file systems. Only disk encryption
// protects these.
func shred(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shredding %s: %w", path, err)
	}
	if info.Mode().IsRegular() {
		if err := overwrite(path, info.Size()); err != nil {
			return fmt.Errorf("shredding %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("shredding %s: %w", path, err)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func overwrite(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, zeros{}, size)
	return errors.Join(err, f.Sync(), f.Close())
}

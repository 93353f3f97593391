package apply

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ShredSecrets overwrites and removes what an operation that is over keeps of
// its bootstrap data: the scripts and their environment. Their results and
// output stay, and so do the copies that Undo needs; those go with the
// directory, see Shred. It may be repeated.
func ShredSecrets(dir string) error {
	scripts, err := filepath.Glob(filepath.Join(dir, "scripts", "*"))
	errs := []error{err}
	for _, script := range scripts {
		for _, name := range []string{"script", "spec.json"} {
			errs = append(errs, Shred(filepath.Join(script, name)))
		}
	}
	return errors.Join(errs...)
}

// Shred overwrites a file, or every file of a directory, syncs and removes it.
// Nothing there is fine. On a file system that writes elsewhere, or on flash,
// blocks may survive; what protects those is encrypting the disk.
func Shred(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shredding %s: %w", path, err)
	}
	switch {
	case info.IsDir():
		entries, err := os.ReadDir(path)
		if err != nil {
			return fmt.Errorf("shredding %s: %w", path, err)
		}
		for _, e := range entries {
			if err := Shred(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	case info.Mode().IsRegular():
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

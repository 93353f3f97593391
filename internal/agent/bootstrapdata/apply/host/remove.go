package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// RemoveFile removes a file and its temporary copy. A missing file is no error.
func (f *Files) RemoveFile(path string) error {
	var errs []error
	for _, p := range []string{f.RealPath(path), durable.Temporary(f.RealPath(path))} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, fmt.Errorf("removing %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// CheckNoMount returns an error if something is mounted at a directory or below. The
// mounted files must not be deleted with the directory. A bind mount from the same
// file system has the same device number, so only the kernel's mount table shows it.
func (f *Files) CheckNoMount(dir string) error {
	points, err := mounts.Points(f.root)
	if err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	// A home directory may end with a slash or be a link that userdel follows.
	resolved, err := f.Resolve(dir)
	if err != nil {
		return err
	}
	if point, found := mounts.At(points, resolved); found {
		return fmt.Errorf("removing %s: %s is mounted; unmount it and reset again", dir, point)
	}
	return nil
}

// RemoveDir removes a directory and all below it, unless something is mounted
// there.
func (f *Files) RemoveDir(path string) error {
	root := f.RealPath(path)
	if err := os.Remove(durable.Temporary(root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what an interrupted bootstrap left: %w", err)
	}
	info, err := os.Lstat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.IsDir() {
		return err
	}
	if err := f.CheckNoMount(path); err != nil {
		return err
	}
	parent, err := os.Lstat(filepath.Dir(root))
	if err != nil {
		return fmt.Errorf("removing directory %s: %w", path, err)
	}
	return removeTree(root, deviceNumber(parent))
}

func deviceNumber(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Dev) //nolint:unconvert // its type differs between architectures
	}
	return 0
}

func removeTree(path string, on uint64) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if info.IsDir() {
		if deviceNumber(info) != on {
			return fmt.Errorf("removing %s: something is mounted there; unmount it and reset again", path)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return fmt.Errorf("removing %s: %w", path, err)
		}
		var errs []error
		for _, e := range entries {
			errs = append(errs, removeTree(filepath.Join(path, e.Name()), on))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

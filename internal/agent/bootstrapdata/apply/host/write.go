package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// Replace writes a file as a whole. If something is mounted on the file, it is
// written in place.
func (f *Files) Replace(target string, content []byte, mode fs.FileMode, uid, gid int) error {
	path := f.RealPath(target)
	attributes := func(name string) error {
		if err := f.chown(name, uid, gid); err != nil {
			return fmt.Errorf("setting the owner: %w", err)
		}
		return os.Chmod(name, mode)
	}
	err := durable.Write(path, content, func(f *os.File) error { return attributes(f.Name()) })
	if errors.Is(err, syscall.EBUSY) {
		err = WriteInPlace(path, content, false)
		if err == nil {
			err = attributes(path)
		}
	}
	if err != nil {
		return fmt.Errorf("writing file %s: %w", target, err)
	}
	return nil
}

// WriteInPlace writes an existing file without replacing it.
func WriteInPlace(path string, content []byte, appends bool) error {
	flags := os.O_WRONLY | os.O_TRUNC
	if appends {
		flags = os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// MakeDirs makes a directory and its parents durably. Owner and mode are set on new
// directories only.
func (f *Files) MakeDirs(dir string, mode fs.FileMode, uid, gid int) error {
	if dir == "/" || f.Exists(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := f.MakeDirs(parent, mode, uid, gid); err != nil {
		return err
	}
	path := f.RealPath(dir)
	// Renamed into place, so that it never has the wrong mode or owner there.
	temporary := durable.Temporary(path)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what an interrupted bootstrap left: %w", err)
	}
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	err := errors.Join(f.chown(temporary, uid, gid), os.Chmod(temporary, mode))
	if err := errors.Join(err, os.Rename(temporary, path)); err != nil {
		return fmt.Errorf("making directory %s: %w", dir, err)
	}
	return durable.SyncDir(f.RealPath(parent))
}

// Owner returns the owner of a file.
func Owner(info fs.FileInfo) (uid, gid int) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), int(stat.Gid)
	}
	return 0, 0
}

// SetAttributes sets mode and owner of an existing file or directory.
func (f *Files) SetAttributes(target string, mode fs.FileMode, uid, gid int) error {
	path := f.RealPath(target)
	if err := errors.Join(f.chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		return fmt.Errorf("setting mode and owner of %s: %w", target, err)
	}
	return nil
}

// Symlink makes or replaces a symbolic link.
func (f *Files) Symlink(target, path string) error {
	return f.PutLink(path, func(temporary string) error { return os.Symlink(target, temporary) })
}

// PutLink makes a link with a temporary name and renames it, so that the path always
// exists.
func (f *Files) PutLink(path string, link func(temporary string) error) error {
	realPath := f.RealPath(path)
	temporary := durable.Temporary(realPath)
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing what an interrupted bootstrap left: %w", err)
	}
	if err := link(temporary); err != nil {
		return fmt.Errorf("making link %s: %w", path, err)
	}
	if err := os.Rename(temporary, realPath); err != nil {
		return fmt.Errorf("making link %s: %w", path, err)
	}
	return durable.SyncDir(filepath.Dir(realPath))
}

// ModeMask selects the bits of a file mode that chmod sets.
const ModeMask = fs.ModePerm | fs.ModeSticky | fs.ModeSetgid | fs.ModeSetuid

// Digest returns the SHA-256 of data in hexadecimal.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

package installation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// writable is W_OK of access(2).
const writable = 2

// folderMode is the mode of folders that an installation makes.
const folderMode = 0o755

// Disk has the file operations of an installation.
type Disk interface {
	durable.System
	// MakeFolder makes a folder that all users may read.
	MakeFolder(path string) error
	// IsReadOnly reports whether a folder is on a file system that can't be written to.
	IsReadOnly(folder string) bool
	// Sync makes everything durable that any process has written.
	Sync()
}

// OS is the Disk of this machine.
type OS struct{ durable.OS }

// MakeFolder makes a folder. The umask does not affect its mode.
func (OS) MakeFolder(path string) error {
	if err := os.Mkdir(path, folderMode); err != nil {
		return err
	}
	return os.Chmod(path, folderMode)
}

// IsReadOnly asks the kernel, which also knows snapshots that are read-only on a file system
// that is not.
func (OS) IsReadOnly(folder string) bool {
	return errors.Is(syscall.Access(folder, writable), syscall.EROFS)
}

// Sync calls sync(2).
func (OS) Sync() { syscall.Sync() }

// digest returns the SHA-256 of a file, or fs.ErrNotExist. A link, a device or a folder has
// none.
func digest(path string) (_ string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s is no regular file", path))
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// copyFile copies a file and makes it durable. The copy is what is verified.
func copyFile(disk Disk, from, to, want string, mode fs.FileMode) (err error) {
	source, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("reading a staged file: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	sum := sha256.New()
	return durable.Copy(disk, to, io.TeeReader(source, sum), func(f durable.File) error {
		if got := hex.EncodeToString(sum.Sum(nil)); got != want {
			return fmt.Errorf("the SHA-256 of %s is %s, not %s: has somebody changed it?", from, got, want)
		}
		return f.Chmod(mode)
	})
}

// isEmpty reports whether a folder is missing or empty. File systems have lost+found.
func isEmpty(path string) (bool, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking into %s: %w", path, err)
	}
	return len(entries) == 0 || len(entries) == 1 && filepath.Base(entries[0].Name()) == "lost+found", nil
}

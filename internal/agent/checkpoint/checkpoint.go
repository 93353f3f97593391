package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// Checkpoint is a complete checkpoint.
type Checkpoint struct {
	store  Store
	folder string
	files  []file
}

// Folder is where the checkpoint is.
func (c *Checkpoint) Folder() string { return c.folder }

// Has reports whether the checkpoint has a file, by its path on the host.
func (c *Checkpoint) Has(path string) bool { return c.index(path) >= 0 }

// Paths returns the paths on the host of all files, sorted.
func (c *Checkpoint) Paths() []string {
	paths := make([]string, 0, len(c.files))
	for _, f := range c.files {
		paths = append(paths, f.Path)
	}
	return paths
}

// Restore puts a file back to where it was, unless it is there already, and makes it
// durable. It does nothing for a file that the checkpoint does not have.
func (c *Checkpoint) Restore(path string) (restored bool, err error) {
	i := c.index(path)
	if i < 0 {
		return false, nil
	}
	kept, host := filepath.Join(c.folder, filesFolder, path), c.store.on(path)
	if isEqual(kept, host) {
		return false, nil
	}
	if err := c.store.copy(kept, host, c.files[i].Mode); err != nil {
		return false, fmt.Errorf("putting %s back: %w", path, err)
	}
	return true, nil
}

func (c *Checkpoint) index(path string) int {
	return slices.IndexFunc(c.files, func(f file) bool { return f.Path == path })
}

// add copies a file of the host into the checkpoint.
func (c *Checkpoint) add(path string) error {
	source := c.store.on(path)
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	kept := filepath.Join(c.folder, filesFolder, path)
	if err := c.store.mkdir(filepath.Dir(kept)); err != nil {
		return err
	}
	c.files = append(c.files, file{Path: path, Mode: info.Mode().Perm()})
	return c.store.copy(source, kept, 0o600)
}

// copy copies a file, and makes the copy durable with its name.
func (s Store) copy(from, to string, mode fs.FileMode) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	return durable.Copy(s.System, to, source, func(f durable.File) error { return f.Chmod(mode) })
}

// isEqual reports whether two files have the same content.
func isEqual(a, b string) bool {
	sum := digest(a)
	return sum != "" && sum == digest(b)
}

// Digest returns the SHA-256 of a file of the host, in lower-case hex; blank if it can't be
// read.
func (s Store) Digest(path string) string { return digest(s.on(path)) }

func digest(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

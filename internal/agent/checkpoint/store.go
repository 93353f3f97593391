package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

const (
	filesFolder = "files"
	indexFile   = "index.json"
	// SnapshotFile is the name of the snapshot of etcd in a checkpoint.
	SnapshotFile = "etcd.db"

	// kubernetes is the folder of kubeadm. Its folder of backups is left out: these may have
	// the size of etcd's data.
	kubernetes = "/etc/kubernetes"
	backups    = "/etc/kubernetes/tmp"
)

// singles are further files that kubeadm writes.
func singles() []string {
	return []string{"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env"}
}

// IsOfKubelet reports whether a file is the kubelet's configuration that kubeadm writes.
func IsOfKubelet(path string) bool { return slices.Contains(singles(), path) }

// unitFolders have the kubelet's unit and its drop-ins.
func unitFolders() []string {
	return []string{
		"/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d",
		"/usr/local/lib/systemd/system/kubelet.service", "/usr/local/lib/systemd/system/kubelet.service.d",
		"/usr/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service.d",
	}
}

// Store has the checkpoints of a host.
type Store struct {
	// Root replaces "/".
	Root string
	// Folder has a folder for each checkpoint. Nothing else may be in it.
	Folder string
	// System writes files.
	System durable.System
}

// file is a file of a checkpoint.
type file struct {
	// Path is where the file belongs on the host.
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
}

// Take makes a checkpoint of the host with these programs, paths on the host, and returns
// it. It returns a complete one as it is, and begins an incomplete one anew. snapshot
// saves the snapshot of etcd to a file and makes it durable; nil means that the host has no
// member.
func (s Store) Take(ctx context.Context, name string, programs []string, snapshot func(ctx context.Context, path string) error) (*Checkpoint, error) {
	c, err := s.Open(name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	c = &Checkpoint{store: s, folder: filepath.Join(s.Folder, name)}
	if err := s.System.RemoveAll(c.folder); err != nil {
		return nil, fmt.Errorf("removing an incomplete checkpoint: %w", err)
	}
	if err := s.mkdir(c.folder); err != nil {
		return nil, err
	}
	paths, err := s.paths(programs)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := c.add(path); err != nil {
			return nil, fmt.Errorf("keeping a copy of %s: %w", path, err)
		}
	}
	if snapshot != nil {
		if err := snapshot(ctx, filepath.Join(c.folder, SnapshotFile)); err != nil {
			return nil, err
		}
	}
	data, err := json.MarshalIndent(c.files, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the index of a checkpoint: %w", err)
	}
	index := filepath.Join(c.folder, indexFile)
	return c, durable.Replace(s.System, index, append(data, '\n'), func(f durable.File) error { return f.Chmod(0o600) })
}

// Open returns a complete checkpoint, or fs.ErrNotExist.
func (s Store) Open(name string) (*Checkpoint, error) {
	c := &Checkpoint{store: s, folder: filepath.Join(s.Folder, name)}
	data, err := s.System.ReadFile(filepath.Join(c.folder, indexFile))
	if err != nil {
		return nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	if err := json.Unmarshal(data, &c.files); err != nil {
		return nil, fmt.Errorf("reading %s of a checkpoint: %w", indexFile, err)
	}
	return c, nil
}

// Remove removes a checkpoint.
func (s Store) Remove(name string) error {
	if err := s.System.RemoveAll(filepath.Join(s.Folder, name)); err != nil {
		return fmt.Errorf("removing a checkpoint: %w", err)
	}
	return nil
}

// Prune removes all checkpoints but those to keep.
func (s Store) Prune(keep ...string) error {
	entries, err := s.entries()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := s.Remove(entry.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Latest returns the name of the checkpoint that was made last, except for one; blank if
// there is no other.
func (s Store) Latest(except string) (string, error) {
	entries, err := s.entries()
	if err != nil {
		return "", err
	}
	var latest string
	var at time.Time
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || entry.Name() == except || info.ModTime().Before(at) {
			continue
		}
		latest, at = entry.Name(), info.ModTime()
	}
	return latest, nil
}

func (s Store) entries() ([]os.DirEntry, error) {
	entries, err := os.ReadDir(s.Folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for checkpoints: %w", err)
	}
	return entries, nil
}

// Sync makes durable what kubeadm has written.
func (s Store) Sync() error {
	paths, err := s.paths(nil)
	if err != nil {
		return err
	}
	folders := map[string]bool{}
	for _, path := range paths {
		f, _, err := s.System.Overwrite(s.on(path))
		if err != nil {
			return fmt.Errorf("syncing %s: %w", path, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("syncing %s: %w", path, err)
		}
		folders[filepath.Dir(path)] = true
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if err := s.System.SyncDir(s.on(folder)); err != nil {
			return err
		}
	}
	return nil
}

// paths returns the files to keep, those of them that exist.
func (s Store) paths(programs []string) ([]string, error) {
	var found []string
	for _, path := range slices.Concat([]string{kubernetes}, singles(), unitFolders(), programs) {
		files, _, err := s.System.Walk(s.on(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for what to keep: %w", err)
		}
		for _, name := range files {
			name = "/" + strings.TrimPrefix(strings.TrimPrefix(name, s.Root), "/")
			if !strings.HasPrefix(name, backups+"/") {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func (s Store) on(path string) string { return filepath.Join(s.Root, path) }

// mkdir makes a folder and those above it durable.
func (s Store) mkdir(path string) error {
	if err := s.System.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := s.System.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making a folder of a checkpoint: %w", err)
	}
	return s.System.SyncDir(filepath.Dir(path))
}

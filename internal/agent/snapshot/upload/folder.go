package upload

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/download"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// syncEvery is after how many bytes a copy waits until they are on the disk or the server, so
// that a copy that makes no progress is noticed.
const syncEvery = 16 << 20

// Copier copies objects to folders that shares or other disks are mounted at. The server of a
// share may be away, and then no call returns. So an attempt ends without its goroutine, and no
// further attempt begins before that has ended.
type Copier struct {
	// State is a folder of the agent's state.
	State string
	// System writes files.
	System durable.System
	// FileSystem identifies the file system of a folder.
	FileSystem func(folder string) (uint64, error)

	running sync.Mutex
}

// FileSystem returns the number of the file system of a folder, which differs between mounted
// file systems.
func FileSystem(folder string) (uint64, error) {
	info, err := os.Stat(folder)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, fmt.Errorf("%s is no folder", folder)
	}
	return stat.Dev, nil
}

// copied is a file in a folder.
type copied struct {
	path, sha256 string
	err          error
}

// copy copies an object of a cluster to the folder, unless it is there, and removes the oldest
// ones. authority names the folder of the cluster.
func (c *Copier) copy(ctx context.Context, to protocol.EtcdSnapshotFolder, authority, id string, o object) copied {
	if !c.running.TryLock() {
		return copied{err: fmt.Errorf("%s has not answered since the last attempt: is the server of the share away?", to.Path)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := download.NewBody(o, o.size, 1, func() {
		cancel(fmt.Errorf("%s took nothing for a minute: is the server of the share away?", to.Path))
	})
	defer body.Stop()
	ended := make(chan copied, 1)
	go func() {
		defer c.running.Unlock()
		f := folder{c, to, filepath.Join(to.Path, authority)}
		ended <- f.copy(ctx, id, body, o.size)
	}()
	select {
	case done := <-ended:
		return done
	case <-ctx.Done():
		return copied{err: context.Cause(ctx)}
	}
}

// folder is the folder of a cluster.
type folder struct {
	*Copier
	to   protocol.EtcdSnapshotFolder
	path string
}

func (f folder) copy(ctx context.Context, id string, body io.Reader, size int64) copied {
	name := protocol.EtcdSnapshotObjectName(id, f.to.HostName)
	done := copied{path: filepath.Join(f.path, name)}
	if done.err = f.open(name); done.err != nil {
		return done
	}
	if done.sha256, done.err = f.existing(ctx, done.path, size); done.err != nil {
		return done
	}
	if done.sha256 == "" {
		if done.sha256, done.err = f.write(ctx, done.path, body); done.err != nil {
			return done
		}
	}
	done.err = f.keepNewest(name)
	return done
}

// open makes the folder of the cluster, if the folder that it is in is there, and not only the
// place that it is mounted at.
func (f folder) open(name string) error {
	if !filepath.IsAbs(f.to.Path) || filepath.Base(name) != name {
		return errors.New("the manager has sent no valid folder")
	}
	is, err := f.FileSystem(f.to.Path)
	if err != nil {
		return fmt.Errorf("looking at the folder for snapshots: %w", err)
	}
	own, err := f.FileSystem(f.State)
	if err != nil {
		return fmt.Errorf("looking at the agent's state: %w", err)
	}
	if is == own {
		return fmt.Errorf("%s is on the same file system as the agent's state: mount a share or another disk there", f.to.Path)
	}
	if err := f.System.Mkdir(f.path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the folder of the cluster: %w", err)
	}
	return nil
}

// existing returns the SHA-256 of the file that an earlier attempt has completed, or blank.
// The size of a complete one follows from the snapshot and the recipients.
func (f folder) existing(ctx context.Context, path string, size int64) (string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for an earlier copy: %w", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	if info, err := file.Stat(); err != nil || info.Size() != size || !info.Mode().IsRegular() {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, reader{ctx, file}); err != nil {
		return "", fmt.Errorf("reading an earlier copy: %w", err)
	}
	return text(sum), nil
}

// write writes a file. Until it is complete it has a name that depends on the host only, so that
// interrupted attempts leave at most one.
func (f folder) write(ctx context.Context, path string, body io.Reader) (string, error) {
	sum := sha256.New()
	partial := filepath.Join(f.path, "."+f.to.HostName+".partial")
	system := share{f.System}
	err := durable.Stream(system, partial, func(file durable.File) error {
		for {
			n, err := io.CopyN(io.MultiWriter(file, sum), reader{ctx, body}, syncEvery)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = file.Sync()
			}
			if err != nil {
				return fmt.Errorf("writing %d bytes to %s: %w", n, f.path, err)
			}
		}
	})
	if err != nil {
		return "", err
	}
	if err := f.System.Rename(partial, path); err != nil {
		return "", fmt.Errorf("naming the copy of the snapshot: %w", err)
	}
	return text(sum), system.SyncDir(f.path)
}

// keepNewest removes the oldest snapshots, of whatever host. The one with the name stays.
func (f folder) keepNewest(name string) error {
	files, _, err := f.System.Walk(f.path)
	if err != nil {
		return fmt.Errorf("looking for old snapshots: %w", err)
	}
	var names []string
	for _, file := range files {
		base := filepath.Base(file)
		if _, _, ok := protocol.ParseEtcdSnapshotObjectName(base); ok && base != name && filepath.Dir(file) == f.path {
			names = append(names, base)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) }) // they begin with the time
	for _, old := range names[min(len(names), max(f.to.Keep-1, 0)):] {
		if err := f.System.Remove(filepath.Join(f.path, old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an old snapshot: %w", err)
		}
	}
	return nil
}

func text(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

// share is a System on file systems of which some can't sync a folder, such as SMB's.
type share struct{ durable.System }

func (s share) SyncDir(path string) error {
	err := s.System.SyncDir(path)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

// reader ends with its context.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

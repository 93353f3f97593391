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
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// syncEvery is after how many bytes a copy waits until they are on the disk or the server, so
// that a copy that makes no progress is noticed.
const syncEvery = 1 << 20

// folder is the folder of a cluster in a folder that something is mounted at.
type folder struct {
	// system writes files in a folder.
	system       func(*os.Root) durable.System
	isMountPoint func(path string) (bool, error)
	to           protocol.EtcdSnapshotFolder
	// path is to's folder for the cluster, and name the last part of it.
	path, name string
	// progress is called whenever the file system has answered.
	progress func()
}

// copied is a file in a folder.
type copied struct {
	path, sha256 string
	err          error
}

// copy copies an object of size bytes, unless it is there, and removes the oldest ones.
func (f folder) copy(ctx context.Context, id string, body io.Reader, size int64) copied {
	name := protocol.EtcdSnapshotObjectName(id, f.to.HostName)
	done := copied{path: filepath.Join(f.path, name)}
	root, err := f.open(name)
	if err != nil {
		done.err = err
		return done
	}
	defer func() { _ = root.Close() }() // what is in it was synced
	if done.sha256, done.err = f.existing(ctx, root, name, size); done.err != nil {
		return done
	}
	files := f.system(root)
	if done.sha256 == "" {
		if done.sha256, done.err = f.write(ctx, files, name, body, size); done.err != nil {
			return done
		}
	}
	done.err = f.keepNewest(files, name)
	return done
}

// open makes the folder of the cluster, if something is mounted at the folder that contains it, and
// opens it. What is done in it needs no path that leads there: whoever can write to the share can put
// a link anywhere at any time.
func (f folder) open(name string) (*os.Root, error) {
	if !filepath.IsAbs(f.to.Path) || filepath.Base(name) != name {
		return nil, errors.New("the manager has sent no valid folder")
	}
	mounted, err := f.isMountPoint(f.to.Path)
	if err != nil {
		return nil, fmt.Errorf("looking at the folder for snapshots: %w", err)
	}
	if !mounted {
		return nil, fmt.Errorf("nothing is mounted at %s: mount a share or another disk there", f.to.Path)
	}
	parent, err := os.OpenRoot(f.to.Path)
	if err != nil {
		return nil, fmt.Errorf("opening the folder for snapshots: %w", err)
	}
	defer func() { _ = parent.Close() }() // it was synced
	folders := f.system(parent)
	if err := folders.Mkdir(f.name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the folder of the cluster: %w", err)
	}
	f.progress()
	if err := folders.SyncDir("."); err != nil {
		return nil, err
	}
	return openRoot(f.path)
}

// openRoot opens a folder, and no link to one.
func openRoot(path string) (*os.Root, error) {
	opened, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is not a folder: remove it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the cluster: %w", err)
	}
	defer func() { _ = opened.Close() }() // it is only opened again
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", opened.Fd()))
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the cluster: %w", err)
	}
	return root, nil
}

// existing returns the SHA-256 of the file that an earlier attempt has completed, or blank.
// The size of a complete one follows from the snapshot and the recipients.
func (f folder) existing(ctx context.Context, root *os.Root, name string, size int64) (string, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() == fs.ModeSymlink {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for an earlier copy: %w", err)
	}
	// Opening anything but a file must not wait.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("looking for an earlier copy: %w", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	if info, err := file.Stat(); err != nil || info.Size() != size || !info.Mode().IsRegular() {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, reader{ctx, file, f.progress}); err != nil {
		return "", fmt.Errorf("reading an earlier copy: %w", err)
	}
	return text(sum), nil
}

// write writes a file of size bytes. Until it is complete it has a name that depends on the host
// only, so that interrupted attempts leave at most one.
func (f folder) write(ctx context.Context, files durable.System, name string, body io.Reader, size int64) (string, error) {
	sum := sha256.New()
	partial := "." + f.to.HostName + ".partial"
	err := durable.Stream(files, partial, func(file durable.File) error {
		for left := size; left > 0; {
			n, err := io.CopyN(io.MultiWriter(file, sum), reader{ctx, body, f.progress}, min(left, syncEvery))
			left -= n
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("the snapshot on the host ends %d bytes too early: %w", left, io.ErrUnexpectedEOF)
			}
			if err == nil {
				err = file.Sync()
			}
			if err != nil {
				return err
			}
			f.progress()
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("writing to %s: %w", f.path, err)
	}
	f.progress()
	if err := files.Rename(partial, name); err != nil {
		return "", fmt.Errorf("naming the copy of the snapshot in %s: %w", f.path, err)
	}
	return text(sum), files.SyncDir(".")
}

// keepNewest removes the oldest snapshots, of whatever host. The one with the name stays.
func (f folder) keepNewest(files durable.System, name string) error {
	found, _, err := files.Walk(".")
	if err != nil {
		return fmt.Errorf("looking for old snapshots in %s: %w", f.path, err)
	}
	names := slices.DeleteFunc(found, func(file string) bool {
		_, _, ok := protocol.ParseEtcdSnapshotObjectName(file)
		return !ok
	})
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) }) // they begin with the time
	for _, old := range names[min(len(names), max(f.to.Keep, 1)):] {
		if old == name {
			continue
		}
		f.progress()
		if err := files.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an old snapshot in %s: %w", f.path, err)
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

// reader ends with its context, and calls progress after each Read.
type reader struct {
	ctx      context.Context
	from     io.Reader
	progress func()
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.from.Read(p)
	r.progress()
	return n, err
}

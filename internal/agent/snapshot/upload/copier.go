package upload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// answerTimeout is how long a file system may take for each call.
	answerTimeout = time.Minute
	// maxRunning bounds the attempts that have not ended.
	maxRunning = 4
)

// Copier copies objects to folders that shares or other disks are mounted at. The server of a
// share may be unreachable, and then no call returns. So an attempt ends without its goroutine,
// and no further attempt at the same folder begins before that has ended.
type Copier struct {
	// System writes files in a folder.
	System func(*os.Root) durable.System
	// IsMountPoint reports whether something is mounted at a folder.
	IsMountPoint func(path string) (bool, error)

	mu sync.Mutex
	// running are the folders of attempts that have not ended.
	running map[string]bool
}

// IsMountPoint reports whether something is mounted at a folder. It has a share mounted that the
// operating system mounts on demand. It needs Linux 5.8.
func IsMountPoint(path string) (bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_TYPE, &stat); err != nil {
		return false, fmt.Errorf("looking at %s: %w", path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return false, fmt.Errorf("%s is not a folder", path)
	case stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0:
		return false, fmt.Errorf("the kernel does not tell whether something is mounted at %s: it is older than Linux 5.8", path)
	default:
		return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
}

// copy copies an object of a cluster to the folder, unless it is there, and removes the oldest
// ones. authority names the folder of the cluster.
func (c *Copier) copy(ctx context.Context, to protocol.EtcdSnapshotFolder, authority, id string, o object) copied {
	if err := c.begin(to.Path); err != nil {
		return copied{err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(answerTimeout, func() {
		cancel(fmt.Errorf("%s has not answered for %s: is the server of the share unreachable?", to.Path, answerTimeout))
	})
	defer watchdog.Stop()
	f := folder{
		system:       func(in *os.Root) durable.System { return share{c.System(in)} },
		isMountPoint: c.IsMountPoint, to: to, path: filepath.Join(to.Path, authority), name: authority,
		progress: func() { watchdog.Reset(answerTimeout) },
	}
	ended := make(chan copied, 1)
	go func() {
		done := f.copy(ctx, id, o, o.size)
		c.end(to.Path) // first, because the caller may begin the next attempt at once
		ended <- done
	}()
	select {
	case done := <-ended:
		return done
	case <-ctx.Done():
		return copied{err: context.Cause(ctx)}
	}
}

// begin records an attempt, or returns an error if it must not begin.
func (c *Copier) begin(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.running[path]:
		return fmt.Errorf("%s has not answered since the last attempt: is the server of the share unreachable?", path)
	case len(c.running) >= maxRunning:
		return fmt.Errorf("%d folders have not answered: restart the agent", maxRunning)
	}
	if c.running == nil {
		c.running = map[string]bool{}
	}
	c.running[path] = true
	return nil
}

func (c *Copier) end(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, path)
}

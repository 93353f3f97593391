package pace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	// part is how much is written at a time, in bytes.
	part = 256 << 10
	// idle is the ratio of each pause to the time that the part before it took.
	idle = 7
	// longest bounds each pause, and budget all pauses in the writing of one file, so that it gets
	// complete on a slow disk too.
	longest = time.Second
	budget  = 5 * time.Minute
)

// pauses are the pauses in the work on one file.
type pauses struct {
	ctx   context.Context
	since time.Time
	left  time.Duration
}

func newPauses(ctx context.Context, budget time.Duration) *pauses {
	return &pauses{ctx, time.Now(), budget}
}

// pause does nothing for a multiple of the time since the last pause. It returns the cause if the
// context ends.
func (p *pauses) pause() error {
	d := min(time.Since(p.since)*idle, longest, p.left)
	p.left -= d
	err := retry.System{}.Wait(p.ctx, d)
	p.since = time.Now()
	return err
}

// Writer passes what is written on, in parts that are on the disk before the next one follows.
// Nothing is durable before the file is synced.
type Writer struct {
	to      io.Writer
	pauses  *pauses
	written int
}

// NewWriter returns a Writer for a file, or for something else, which is not waited for. A Write
// ends with ctx.
func NewWriter(ctx context.Context, to io.Writer) *Writer {
	return &Writer{to: to, pauses: newPauses(ctx, budget)}
}

// Write implements io.Writer.
func (w *Writer) Write(data []byte) (int, error) {
	n, err := w.to.Write(data)
	if w.written += n; err != nil || w.written < part {
		return n, err
	}
	w.written = 0
	if err := flush(w.to); err != nil {
		return n, fmt.Errorf("writing to the disk: %w", err)
	}
	return n, w.pauses.pause()
}

// flush waits until what was written to a file is on the disk, without a commit of the file system,
// for which other files would wait too (sync_file_range(2)). The kernel tells an error of the disk once,
// so that syncing the file afterwards does not.
func flush(to io.Writer) error {
	f, ok := to.(interface{ Fd() uintptr })
	if !ok {
		return nil
	}
	err := unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	for _, cannot := range []error{unix.ENOSYS, unix.EINVAL, unix.ESPIPE, unix.EOPNOTSUPP} {
		if errors.Is(err, cannot) {
			return nil
		}
	}
	return err
}

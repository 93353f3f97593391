package quickstart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// endTimeout is how long a world may take to end when it is told to.
	endTimeout = time.Minute
	// killTimeout is how long it may take when it is killed.
	killTimeout = 10 * time.Second
	endInterval = 50 * time.Millisecond
)

// ErrRuns means that a world is there already.
var ErrRuns = errors.New("a quickstart runs already: make quickstart-down ends it")

// Folder holds all traces of a world.
type Folder struct{ Path string }

// Log is what the world says.
func (f Folder) Log() string { return filepath.Join(f.Path, "quickstart.log") }

// Management is the folder of the management cluster.
func (f Folder) Management() string { return filepath.Join(f.Path, "management") }

func (f Folder) lock() string { return filepath.Join(f.Path, "lock") }

// Prepare makes the folder ready for a new world. What a world left that was killed is removed; anything else that is
// there is not touched.
func (f Folder) Prepare() error {
	runs, err := f.runs()
	if err != nil {
		return err
	}
	if runs {
		return ErrRuns
	}
	if err := f.remove(); err != nil {
		return err
	}
	if err := os.MkdirAll(f.Path, 0o700); err != nil {
		return fmt.Errorf("making the folder of the quickstart: %w", err)
	}
	return nil
}

// remove removes the folder if it is a quickstart's or empty.
func (f Folder) remove() error {
	entries, err := os.ReadDir(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking into the folder of the quickstart: %w", err)
	}
	if _, err := os.Stat(f.lock()); err != nil && len(entries) > 0 {
		return fmt.Errorf("using the folder %s: it has other things in it, and no quickstart has been there: name another one", f.Path)
	}
	if err := os.RemoveAll(f.Path); err != nil {
		return fmt.Errorf("removing what a quickstart left: %w", err)
	}
	return nil
}

// hold locks the folder for the world that this process is, until it ends.
func (f Folder) hold() (release func() error, err error) {
	file, err := os.OpenFile(f.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the quickstart: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(ErrRuns, file.Close())
	}
	if err := errors.Join(file.Truncate(0), write(file, strconv.Itoa(os.Getpid()))); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the lock of the quickstart: %w", err), file.Close())
	}
	return file.Close, nil
}

func write(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// runs reports whether there is a world.
func (f Folder) runs() (bool, error) {
	file, err := os.Open(f.lock())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the lock of the quickstart: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Shared, so that two who look don't see each other.
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at the lock of the quickstart: %w", err)
	}
	return false, nil
}

// Down ends the world, if there is one, and removes all traces of it.
func (f Folder) Down(ctx context.Context) error {
	runs, err := f.runs()
	if err != nil {
		return err
	}
	if runs {
		err := f.Stop(ctx)
		if err == nil {
			err = f.await(ctx, endTimeout)
		}
		// One that doesn't listen is killed.
		if err != nil {
			if err := errors.Join(f.kill(), f.await(ctx, killTimeout)); err != nil {
				return err
			}
		}
	}
	return f.remove()
}

// await waits until there is no world.
func (f Folder) await(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(endInterval)
	defer tick.Stop()
	for {
		runs, err := f.runs()
		if err != nil || !runs {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the quickstart to end: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// kill kills the world; the kernel then ends what it has started. The number is the process's that holds the lock as
// long as the lock is held.
func (f Folder) kill() error {
	text, err := os.ReadFile(f.lock())
	if err != nil {
		return fmt.Errorf("reading the lock of the quickstart: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("reading the lock of the quickstart: it names no process: %q", text)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("finding the quickstart's process: %w", err)
	}
	if runs, err := f.runs(); err != nil || !runs {
		return err
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing the quickstart's process: %w", err)
	}
	return nil
}

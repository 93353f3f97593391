package quickstart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
type Folder struct {
	Path string
	// grace is how long a world may take to end; 0 means endTimeout.
	grace time.Duration
}

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
	// From now on it is a quickstart's, before there is a world.
	if err := os.WriteFile(f.lock(), nil, 0o600); err != nil {
		return fmt.Errorf("making the lock of the quickstart: %w", err)
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
	// Of the kind that says whose it is.
	if err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(ErrRuns, file.Close())
	}
	return file.Close, nil
}

// world is the process ID of the world; 0 if there is none.
func (f Folder) world() (int, error) {
	file, err := os.Open(f.lock())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("opening the lock of the quickstart: %w", err)
	}
	defer func() { _ = file.Close() }()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("looking at the lock of the quickstart: %w", err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}

// runs reports whether there is a world.
func (f Folder) runs() (bool, error) {
	pid, err := f.world()
	return pid != 0, err
}

// Down ends the world, if there is one, and removes all traces of it.
func (f Folder) Down(ctx context.Context) error {
	runs, err := f.runs()
	if err != nil {
		return err
	}
	if runs {
		// Not by an order: while it starts, which takes ten minutes the first time, it takes none.
		err := f.signal(unix.SIGTERM)
		if err == nil {
			err = f.await(ctx, f.patience())
		}
		// One that doesn't listen is killed; the kernel then ends what it has started.
		if err != nil {
			if err := errors.Join(f.signal(unix.SIGKILL), f.await(ctx, killTimeout)); err != nil {
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

// patience is how long a world may take to end.
func (f Folder) patience() time.Duration { return cmp.Or(f.grace, endTimeout) }

// signal sends the world a signal, if there is one.
func (f Folder) signal(signal os.Signal) error {
	pid, err := f.world()
	if err != nil || pid == 0 {
		return err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("finding the quickstart's process: %w", err)
	}
	// If it still is the world, the process that was found is.
	if again, err := f.world(); err != nil || again != pid {
		return err
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the quickstart's process: %w", err)
	}
	return nil
}

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
	// endTimeout is how long a simulation may take to end when it is told to.
	endTimeout = time.Minute
	// killTimeout is how long it may take when it is killed.
	killTimeout = 10 * time.Second
	endInterval = 50 * time.Millisecond
)

// ErrRuns means that a simulation is there already.
var ErrRuns = errors.New("a quickstart runs already: make quickstart-down ends it")

// Folder has all files of a simulation.
type Folder struct {
	Path string
	// grace is how long a simulation may take to stop; 0 means endTimeout.
	grace time.Duration
}

// Log returns the log file of the simulation.
func (f Folder) Log() string { return filepath.Join(f.Path, "quickstart.log") }

// Management returns the folder of the management cluster.
func (f Folder) Management() string { return filepath.Join(f.Path, "management") }

func (f Folder) lockFile() string { return filepath.Join(f.Path, "lock") }

// Prepare makes the folder ready for a new simulation. It removes the files of a killed simulation, and fails if the
// folder has other files.
func (f Folder) Prepare() error {
	runs, err := f.isRunning()
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
	// The lock marks the folder as a quickstart's, even before a simulation runs.
	if err := os.WriteFile(f.lockFile(), nil, 0o600); err != nil {
		return fmt.Errorf("making the lock of the quickstart: %w", err)
	}
	return nil
}

// remove removes the folder if it is empty or belongs to a quickstart.
func (f Folder) remove() error {
	entries, err := os.ReadDir(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking into the folder of the quickstart: %w", err)
	}
	if _, err := os.Stat(f.lockFile()); err != nil && len(entries) > 0 {
		return fmt.Errorf("using the folder %s: it has other things in it, and no quickstart has been there: name another one", f.Path)
	}
	if err := os.RemoveAll(f.Path); err != nil {
		return fmt.Errorf("removing what a quickstart left: %w", err)
	}
	return nil
}

// lock locks the folder for this process.
func (f Folder) lock() (release func() error, err error) {
	file, err := os.OpenFile(f.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the quickstart: %w", err)
	}
	// A POSIX lock: F_GETLK returns the process that holds it.
	if err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(ErrRuns, file.Close())
	}
	return file.Close, nil
}

// processID returns the process ID of the simulation, or 0 if none runs.
func (f Folder) processID() (int, error) {
	file, err := os.Open(f.lockFile())
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

// isRunning reports whether a simulation runs.
func (f Folder) isRunning() (bool, error) {
	pid, err := f.processID()
	return pid != 0, err
}

// Down stops the simulation, if one runs, and removes its files.
func (f Folder) Down(ctx context.Context) error {
	runs, err := f.isRunning()
	if err != nil {
		return err
	}
	if runs {
		// Not by a command: it accepts none during its start, which takes ten minutes the first time.
		err := f.signal(unix.SIGTERM)
		if err == nil {
			err = f.await(ctx, f.stopTimeout())
		}
		// A simulation that ignores the signal is killed; the kernel then kills its child processes.
		if err != nil {
			if err := errors.Join(f.signal(unix.SIGKILL), f.await(ctx, killTimeout)); err != nil {
				return err
			}
		}
	}
	return f.remove()
}

// await waits until there is no simulation.
func (f Folder) await(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(endInterval)
	defer tick.Stop()
	for {
		runs, err := f.isRunning()
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

// stopTimeout is how long a simulation may take to end.
func (f Folder) stopTimeout() time.Duration { return cmp.Or(f.grace, endTimeout) }

// signal sends the simulation a signal, if it runs.
func (f Folder) signal(signal os.Signal) error {
	pid, err := f.processID()
	if err != nil || pid == 0 {
		return err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("finding the quickstart's process: %w", err)
	}
	// If it still is the simulation, the process that was found is.
	if again, err := f.processID(); err != nil || again != pid {
		return err
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the quickstart's process: %w", err)
	}
	return nil
}

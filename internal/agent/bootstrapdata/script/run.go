package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Run runs the script that was prepared in dir. If the script runs already, Run
// waits for it. If the script ended, Run returns its result. runner is the
// command line that calls Main, its program by an absolute path; dir is
// appended.
//
// When ctx ends, Run returns its error and the script continues. One goroutine stays
// blocked until the script ends. Only one process may call Run, and only once at a
// time per directory.
func Run(ctx context.Context, dir string, runner ...string) (Result, error) {
	if r, err := readResult(dir); r != nil || err != nil {
		return value(r), err
	}
	lock, err := openLock(dir)
	if err != nil {
		return Result{}, err
	}
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return wait(ctx, dir, lock)
	case err != nil:
		return Result{}, errors.Join(fmt.Errorf("locking %s: %w", lock.Name(), err), lock.Close())
	}
	// The script may have ended between the first look and the lock.
	if done, err := hasStarted(dir); done || err != nil {
		return finish(dir, errors.Join(err, lock.Close()))
	}
	if err := spawn(ctx, dir, lock, runner); err != nil {
		return Result{}, errors.Join(err, lock.Close())
	}
	if err := lock.Close(); err != nil {
		return Result{}, fmt.Errorf("handing the lock over to the script: %w", err)
	}
	if lock, err = openLock(dir); err != nil {
		return Result{}, err
	}
	return wait(ctx, dir, lock)
}

func value(r *Result) Result {
	if r == nil {
		return Result{}
	}
	return *r
}

func openLock(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of a script: %w", err)
	}
	return lock, nil
}

func hasStarted(dir string) (bool, error) { return exists(filepath.Join(dir, startedFile)) }

// spawn starts the runner in a session of its own. It outlives this process.
func spawn(ctx context.Context, dir string, lock *os.File, runner []string) error {
	if len(runner) == 0 {
		return errors.New("no command is configured that runs scripts")
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of a script's runner: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), runner[0], append(append([]string{}, runner[1:]...), dir)...)
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return fmt.Errorf("starting a script's runner: %w", err)
	}
	// The runner may outlive the script, see Main, so nothing waits for it. Its
	// result is in result.json.
	go func() { _ = cmd.Wait() }()
	return nil
}

// wait waits until the lock is free, and closes it.
func wait(ctx context.Context, dir string, lock *os.File) (Result, error) {
	released := make(chan error, 1)
	go func() {
		for {
			err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
			if !errors.Is(err, syscall.EINTR) {
				released <- errors.Join(err, lock.Close())
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return Result{}, fmt.Errorf("waiting for a script, which goes on: %w", ctx.Err())
	case err := <-released:
		return finish(dir, err)
	}
}

// finish returns the result of a script that is not running.
func finish(dir string, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	if r, err := readResult(dir); r != nil || err != nil {
		return value(r), err
	}
	done, err := hasStarted(dir)
	switch {
	case err != nil:
		return Result{}, err
	case done:
		return Result{}, ErrInterrupted
	}
	reason, err := os.ReadFile(filepath.Join(dir, logFile))
	return Result{}, errors.Join(fmt.Errorf("the runner ended before it started the script: %s", strings.TrimSpace(string(reason))), err)
}

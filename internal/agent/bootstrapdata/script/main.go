package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// lockFD is the file descriptor of spawn's first extra file.
const lockFD = 3

// Main is the runner: it runs the script prepared in dir, unless it was
// started before, and returns the exit status. Only Run may start it. It needs a
// process of its own, because it changes the umask and ignores SIGHUP.
//
// A process that the script leaves in the background may still hold the
// output. Main then stays to read and drop what it prints, because a closed
// pipe would kill it; by then the result is recorded and the lock released.
func Main(dir string) int {
	if err := runOnce(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runOnce(dir string) error {
	signal.Ignore(syscall.SIGHUP)
	syscall.Umask(0o022)
	lock, err := takeLock(dir)
	if err != nil {
		return err
	}
	if done, err := hasStarted(dir); done || err != nil {
		return errors.Join(err, lock.Close())
	}
	text, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return fmt.Errorf("reading the script's environment: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("decoding the script's environment: %w", err)
	}
	out, err := newCapture(filepath.Join(dir, outputFile))
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe for the script's output: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(dir, startedFile), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	result := execute(dir, spec, r, w, out)
	if spec.Sentinel != "" {
		if result.Sentinel, err = exists(spec.Sentinel); err != nil {
			return fmt.Errorf("looking for the sentinel file: %w", err)
		}
	}
	if text, err = json.Marshal(result); err != nil {
		return fmt.Errorf("encoding the result of a script: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(dir, resultFile), text, 0o600); err != nil {
		return err
	}
	if err := lock.Close(); err != nil {
		return fmt.Errorf("releasing the lock of a script: %w", err)
	}
	_, err = io.Copy(io.Discard, r)
	return err
}

// takeLock returns the lock that Run passed, closed for the script.
func takeLock(dir string) (*os.File, error) {
	lock := os.NewFile(lockFD, lockFile)
	if lock == nil {
		return nil, errors.New("this command is part of the agent and not for use by hand")
	}
	syscall.CloseOnExec(lockFD)
	mine, err := lock.Stat()
	if err != nil {
		return nil, fmt.Errorf("looking at the lock of a script: %w", err)
	}
	named, err := os.Stat(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("looking at the lock of a script: %w", err)
	}
	if !os.SameFile(mine, named) {
		return nil, errors.New("this command is part of the agent and not for use by hand")
	}
	return lock, nil
}

// execute runs the script with its output on the pipe, and returns when the
// script ended and all that it printed until then is recorded.
func execute(dir string, spec Spec, r, w *os.File, out *capture) Result {
	args := []string{"/bin/sh", filepath.Join(dir, scriptFile)}
	if spec.Direct {
		args = args[1:]
	}
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = spec.WorkDir, spec.Env
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Start()
	closed := w.Close()
	if err = errors.Join(err, closed); err != nil {
		return Result{ExitCode: 127, Problem: errors.Join(err, out.Close()).Error()}
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, r) // ends at the end of file, or at the deadline below
	}()
	_ = cmd.Wait() // ProcessState has the status
	drain(r, out, copied)
	result := Result{ExitCode: cmd.ProcessState.ExitCode()}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		result.ExitCode = 128 + int(status.Signal())
	}
	if err := out.Close(); err != nil {
		result.Problem = err.Error()
	}
	return result
}

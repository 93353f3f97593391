package quickstart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// lookInterval is the polling interval for state that has no notifications.
const lookInterval = 100 * time.Millisecond

// launch starts this program as a simulation in the background and passes its output to say. It returns when the
// simulation accepts commands. If ctx ends earlier, it stops the simulation.
func (f Folder) launch(ctx context.Context, program string, args []string, say func(line string)) (Status, error) {
	log, err := os.OpenFile(f.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Status{}, fmt.Errorf("making the log of the quickstart: %w", err)
	}
	process := exec.Command(program, args...) //nolint:noctx // it outlives this process
	process.Stdout, process.Stderr = log, log
	// A session of its own, so that it gets neither the terminal's hang-up nor its interrupts.
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(process.Start(), log.Close()); err != nil {
		return Status{}, fmt.Errorf("starting the simulation: %w", err)
	}
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = process.Wait()
	}()
	said := tail{path: f.Log()}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.terminate(process.Process, ended)
			return Status{}, context.Cause(ctx)
		case <-ended:
			said.each(say)
			if runs, _ := f.isRunning(); runs {
				return Status{}, ErrRuns // another process was faster
			}
			if failure == nil {
				failure = errEnded
			}
			return Status{}, fmt.Errorf("starting the simulation, whose last line says why it ended: %w", failure)
		case <-tick.C:
		}
		said.each(say)
		if _, err := os.Lstat(f.Path + "/" + socketName); err == nil {
			if status, err := f.Status(ctx); err == nil && status.PID == process.Process.Pid {
				said.each(say)
				return status, nil
			}
		}
	}
}

// terminate stops a process that is starting. It may not have locked the folder yet, so Down can't find it.
func (f Folder) terminate(process *os.Process, ended <-chan struct{}) {
	_ = process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(f.stopTimeout())
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		_ = process.Kill()
		<-ended
	}
}

var errEnded = errors.New("it was stopped")

// tail reads the lines that are appended to a file.
type tail struct {
	path string
	at   int64
}

// each calls say with each new complete line.
func (t *tail) each(say func(line string)) {
	file, err := os.Open(t.path)
	if err != nil {
		return // it may not exist yet
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(file, t.at, maxCall))
	if err != nil {
		return
	}
	end := bytes.LastIndexByte(text, '\n')
	if end < 0 {
		return
	}
	t.at += int64(end + 1)
	for line := range strings.Lines(string(text[:end+1])) {
		say(strings.TrimRight(line, "\n"))
	}
}

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

// lookInterval is how often something is looked at that nobody tells of.
const lookInterval = 100 * time.Millisecond

// launch starts the program again as a world in the background, says what it says, and returns once it takes orders. If
// ctx ends before that there is no world.
func (f Folder) launch(ctx context.Context, program string, args []string, say func(line string)) (Status, error) {
	log, err := os.OpenFile(f.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Status{}, fmt.Errorf("making the log of the quickstart: %w", err)
	}
	process := exec.Command(program, args...) //nolint:noctx // it outlives its starter
	process.Stdout, process.Stderr = log, log
	// In a session of its own, so that neither the end of a terminal nor an interrupt is for it.
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(process.Start(), log.Close()); err != nil {
		return Status{}, fmt.Errorf("starting the world: %w", err)
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
			f.reap(process.Process, ended)
			return Status{}, context.Cause(ctx)
		case <-ended:
			said.each(say)
			if runs, _ := f.runs(); runs {
				return Status{}, ErrRuns // it was quicker
			}
			if failure == nil {
				failure = errEnded
			}
			return Status{}, fmt.Errorf("starting the world, whose last line says why it ended: %w", failure)
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

// reap ends a process that was to be a world, which may not hold the folder yet: then nobody else would find it.
func (f Folder) reap(process *os.Process, ended <-chan struct{}) {
	_ = process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(f.patience())
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		_ = process.Kill()
		<-ended
	}
}

var errEnded = errors.New("it was told to end")

// tail reads what is added to a file.
type tail struct {
	path string
	at   int64
}

// each calls say with each line that has become whole.
func (t *tail) each(say func(line string)) {
	file, err := os.Open(t.path)
	if err != nil {
		return // it may come yet
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

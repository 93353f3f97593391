package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// cleaning is the time that a stopped turn has to remove what it made.
const cleaning = 2 * time.Minute

var errStopped = errors.New("stopped: its time is over")

// runner runs one turn of each group until the time is over.
type runner struct {
	end     time.Time
	passed  record
	file    string // where passed is written
	out     io.Writer
	now     func() time.Time
	execute func(ctx context.Context, command []string, limit time.Duration) error
	summary []string
}

// run returns the names of the turns that failed. Its error says that it could not go on.
func (r *runner) run(ctx context.Context, groups [][]turn) (failed []string, err error) {
	for _, group := range order(groups, r.passed, r.now()) {
		chosen, skipped := choose(group, r.passed, r.left())
		if chosen == nil {
			skipped = group[:1] // of the group one would have run
		}
		for _, t := range skipped {
			r.note("NOT RUN: %s, no time: it takes about %s, and there are %s", t.name, minutes(r.passed.takes(t)), minutes(r.left()))
		}
		if chosen == nil {
			continue
		}
		ok, err := r.try(ctx, *chosen)
		if err != nil {
			return failed, err
		}
		if !ok {
			failed = append(failed, chosen.name)
		}
	}
	for _, line := range r.summary {
		fmt.Fprintln(r.out, line)
	}
	return failed, nil
}

// try runs a turn and records that it passed. A turn that had less time than longest and is stopped has not failed.
func (r *runner) try(ctx context.Context, t turn) (ok bool, err error) {
	start, left := r.now(), r.left()
	fmt.Fprintf(r.out, "==> Turn: %s, about %s of %s\n", t.name, minutes(r.passed.takes(t)), minutes(left))
	err = r.execute(ctx, t.command, min(longest, left))
	took := r.now().Sub(start)
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("running %s: %w", t.name, context.Cause(ctx))
	case errors.Is(err, errStopped) && left < longest:
		r.note("NOT RUN: %s, no time: it was stopped after %s", t.name, minutes(took))
		return true, nil
	case err != nil:
		r.note("FAILED: %s, after %s: %v", t.name, minutes(took), err)
		return false, nil
	}
	r.note("Passed: %s, in %s", t.name, minutes(took))
	r.passed[t.name] = pass{At: r.now(), Took: took}
	return true, r.passed.write(r.file)
}

// left is the time for the next turn.
func (r *runner) left() time.Duration { return r.end.Add(-cleaning).Sub(r.now()) }

// note prints a line now, and again at the end.
func (r *runner) note(format string, args ...any) {
	line := "==> " + fmt.Sprintf(format, args...)
	fmt.Fprintln(r.out, line)
	r.summary = append(r.summary, line)
}

func minutes(d time.Duration) string {
	return strconv.FormatFloat(max(d, 0).Minutes(), 'f', 1, 64) + " min"
}

// execute runs a command. After the limit it and its children are interrupted, and killed if they do not end: errStopped.
func execute(ctx context.Context, command []string, limit time.Duration) error {
	// A limit of zero would be none.
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3fs", max(d, time.Second/100).Seconds()) }
	args := append([]string{"--signal=INT", "--kill-after=" + seconds(cleaning), seconds(limit)}, command...)
	cmd := exec.CommandContext(ctx, "timeout", args...)
	// timeout passes a signal on to the children, which are in its process group.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = cleaning
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return err
	}
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // children that ignore interrupts
	}
	const timedOut = 124
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.ExitStatus() == timedOut || status.Signal() == syscall.SIGKILL {
		return errStopped
	}
	return err
}

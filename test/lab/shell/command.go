package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Command is a program to run.
type Command struct {
	// Args are the program and its arguments.
	Args []string
	// Dir is the folder it runs in; empty for the caller's.
	Dir string
	// Env is added to the caller's environment.
	Env []string
	// Stdin is its input; nil for none.
	Stdin io.Reader
	// Stdout gets its output as it comes, which then is not returned; nil collects it.
	Stdout io.Writer
}

// Run runs a program and returns its output without the last line break. The error holds what it wrote to stderr.
// When the context ends the program and what it has started are asked to stop, and killed after some seconds.
func Run(ctx context.Context, args ...string) (string, error) {
	return Command{Args: args}.Run(ctx)
}

// Run is the function Run for a command with settings.
func (c Command) Run(ctx context.Context) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	// All that it has started, as a terminal's interrupt does: a compiler would outlive the go that waits for it.
	signal := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	cmd.Cancel = func() error { return signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	// A session of its own keeps a terminal's interrupt from it: whether and how it is stopped is the context's business.
	// The kernel ends it with its parent, which it takes the thread for that has started it, so that is kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Stdin, &stdout, &stderr
	cmd.Env = append(os.Environ(), c.Env...)
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	err := cmd.Run()
	out := strings.TrimRight(stdout.String(), "\n")
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = signal(syscall.SIGKILL) // what did not stop
		}
		err = errors.Join(err, context.Cause(ctx))
	}
	detail := strings.TrimSpace(tail(stderr.String(), 4000))
	if detail == "" {
		detail = tail(out, 4000)
	}
	return out, fmt.Errorf("running %s: %w: %s", strings.Join(shorten(c.Args), " "), err, detail)
}

// shorten keeps the words of a command line that tell what it was about.
func shorten(args []string) []string {
	const most = 8
	if len(args) <= most {
		return args
	}
	return append(append([]string{}, args[:most]...), "…")
}

// tail returns the end of text, at most n bytes.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return "…" + text[len(text)-n:]
}

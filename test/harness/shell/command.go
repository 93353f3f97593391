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
	// Dir is its working directory; empty means the caller's.
	Dir string
	// Env is added to the caller's environment.
	Env []string
	// Stdin is its input; nil for none.
	Stdin io.Reader
	// Stdout, if not nil, gets the output, which Run then doesn't return.
	Stdout io.Writer
	// Stderr, if not nil, gets the program's standard error too.
	Stderr io.Writer
}

// Run runs a program and returns its output without the last line break. The error has its standard error. When the
// context ends, the program and its children are terminated, and killed after some seconds.
func Run(ctx context.Context, args ...string) (string, error) {
	return Command{Args: args}.Run(ctx)
}

// Run is the function Run for a command with settings.
func (c Command) Run(ctx context.Context) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	// The whole process group, as a terminal's interrupt does: otherwise compilers outlive the go command.
	signal := func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
	cmd.Cancel = func() error { return signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	// In a session of its own it gets no interrupts from the terminal: only the context stops it.
	// The kernel kills it at the end of the thread that started it, so the thread is kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Stdin, &stdout, &stderr
	cmd.Env = append(os.Environ(), c.Env...)
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(&stderr, c.Stderr)
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

// shorten returns the first words of a command line.
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

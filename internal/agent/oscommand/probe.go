package oscommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// Limits for a program that is probed.
const (
	probeDelay   = time.Second
	maxProbed    = 4 << 10
	busyPause    = 200 * time.Millisecond
	busyAttempts = 10
)

// Waiter waits for d, or until ctx ends, which is an error.
type Waiter interface {
	Wait(ctx context.Context, d time.Duration) error
}

// Probe runs a program about which little is known until it ends or ctx does. The program
// gets no environment and no input. Probe returns the beginnings of its standard output and
// of its error output.
func Probe(ctx context.Context, clock Waiter, path string, args ...string) (stdout, stderr string, err error) {
	for attempt := 1; ; attempt++ {
		stdout, stderr, err = probe(ctx, path, args...)
		// Another child of this process may have inherited the file, open for writing, and
		// has it until its exec.
		if errors.Is(err, syscall.ETXTBSY) && attempt < busyAttempts && clock.Wait(ctx, busyPause) == nil {
			continue
		}
		if err != nil {
			return stdout, stderr, fmt.Errorf("running %s: %w", path, errors.Join(context.Cause(ctx), err))
		}
		return stdout, stderr, nil
	}
}

func probe(ctx context.Context, path string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = probeDelay
	cmd.Env = []string{}
	var out, failure beginning
	cmd.Stdout, cmd.Stderr = &out, &failure
	err = cmd.Run()
	return out.String(), failure.String(), err
}

// beginning stores the first maxProbed bytes.
type beginning struct{ kept bytes.Buffer }

func (b *beginning) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxProbed-b.kept.Len())])
	return len(p), nil
}

func (b *beginning) String() string { return b.kept.String() }

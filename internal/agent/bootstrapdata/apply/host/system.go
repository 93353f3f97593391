package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// LocalSystem runs programs on the host that this process is on. Its zero
// value is ready, and safe for concurrent use.
type LocalSystem struct{}

// maxError limits the quoted standard error in an error, in bytes.
const maxError = 512

// pipeDelay limits the wait for the output of a program that has ended.
const pipeDelay = 5 * time.Second

// Run implements System. A program still running when ctx ends is killed.
func (LocalSystem) Run(ctx context.Context, c Command) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = "/"
	cmd.Env = append(Environment(os.Environ()), "LC_ALL=C")
	// A program may leave one in the background that keeps the pipes open.
	cmd.WaitDelay = pipeDelay
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		text := strings.TrimSpace(stderr.String())
		if len(text) > maxError {
			text = text[len(text)-maxError:]
		}
		return stdout.String(), fmt.Errorf("%w: %s", err, text)
	}
	return stdout.String(), err
}

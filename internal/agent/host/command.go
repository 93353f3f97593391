package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Commander runs a program of the host to its end and returns its standard
// output.
type Commander interface {
	Run(ctx context.Context, stdin string, args ...string) (string, error)
}

// killDelay is how long a program may take to end after it was asked to.
const killDelay = 5 * time.Second

// maxErrorOutput bounds what an error repeats of a program's error output.
const maxErrorOutput = 512

// Commands runs programs with os/exec.
type Commands struct{}

// Run runs a program. Its error quotes the end of what it printed as error.
func (Commands) Run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = killDelay
	var out, failure bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &failure
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(failure.String())
		if len(text) > maxErrorOutput {
			text = "…" + strings.ToValidUTF8(text[len(text)-maxErrorOutput:], "")
		}
		if text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return out.String(), fmt.Errorf("running %s: %w", args[0], errors.Join(context.Cause(ctx), err))
	}
	return out.String(), nil
}

package oscommand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Runner runs a program until it ends and returns its standard output. args[0]
// is the program; its standard input is stdin.
type Runner interface {
	Run(ctx context.Context, stdin string, args ...string) (string, error)
}

// killDelay is how long Run waits for a program's output to be closed after ctx
// ended and the program was killed.
const killDelay = 5 * time.Second

// maxErrorOutput limits how many bytes of a program's error output an error
// contains.
const maxErrorOutput = 512

// System is a Runner on this machine.
type System struct{}

// Run runs a program. Its error contains the end of the program's error output.
func (System) Run(ctx context.Context, stdin string, args ...string) (string, error) {
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

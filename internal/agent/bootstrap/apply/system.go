package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// LocalSystem runs programs on the host that this process is on. Its zero
// value is ready, and safe for concurrent use.
type LocalSystem struct{}

// maxError is how much of standard error an error quotes, in bytes.
const maxError = 512

// Run implements System. A program still running when ctx ends is killed.
func (LocalSystem) Run(ctx context.Context, c Command) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...) //nolint:gosec // the steps' own commands
	cmd.Stdin = strings.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = "/"
	cmd.Env = append(environment(os.Environ()), "LC_ALL=C")
	err := cmd.Run()
	var status *exec.ExitError
	if errors.As(err, &status) {
		text := strings.TrimSpace(stderr.String())
		if len(text) > maxError {
			text = text[len(text)-maxError:]
		}
		return stdout.String(), fmt.Errorf("%w: %s", err, text)
	}
	return stdout.String(), err
}

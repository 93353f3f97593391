package elemental

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
)

// Limits of the CLI.
const (
	// timeout bounds one run: an image of some GiB over a thin line.
	timeout = 2 * time.Hour
	// killDelay is how long it may take to end when it was told to.
	killDelay = 30 * time.Second
	// maxOutput is how much of its output is kept, from the end.
	maxOutput = 64 << 10
	// maxTail is how much of that a message repeats.
	maxTail = 600
)

// operationLabel is put on the system that an upgrade deploys, by toolkits that
// know labels.
const operationLabel = "elemental-agent-operation"

// labelOf is an operation as a label's value, which not every ID could be.
func labelOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// CLI runs the elemental program in PATH. The zero value is ready to use.
type CLI struct {
	// Timeout bounds one run; zero means two hours.
	Timeout time.Duration
}

// run runs a sub-command to its end. Its error repeats the last lines of what was
// printed, without secrets. When ctx ends, the program and all that it started is
// told to end, and killed if it doesn't.
func (c CLI) run(ctx context.Context, environment []string, args ...string) error {
	limit := c.Timeout
	if limit == 0 {
		limit = timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	output := &tail{}
	cmd.Stdout, cmd.Stderr = output, output
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if cmd.Process != nil {
		// Its children end with it, whatever they wait for.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	text := bootstrap.Tail(output.String(), maxTail)
	if text != "" {
		err = errors.Join(err, errors.New(text))
	}
	return fmt.Errorf("running %s %s: %w", program, args[0], err)
}

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if excess := len(t.data) - maxOutput; excess > 0 {
		t.data = append(t.data[:0], t.data[excess:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}

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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Limits of the CLI.
const (
	// timeout is the time limit of one run: an image of some GiB over a slow line.
	timeout = 2 * time.Hour
	// killDelay is the time between SIGTERM and SIGKILL.
	killDelay = 30 * time.Second
	// maxOutput limits how many bytes of the output's end are kept.
	maxOutput = 64 << 10
	// maxTail limits how many bytes of the output an error contains.
	maxTail = 600
)

// operationLabel is the label of the system that an upgrade deploys. Older toolkits
// support no labels.
const operationLabel = "elemental-agent-operation"

// labelOf returns an operation's label value. Not every ID is a valid label value.
func labelOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// CLI runs the elemental program in PATH. The zero value is ready to use.
type CLI struct {
	// Clock times the runs; nil means the machine's clock.
	Clock retry.Clock
}

// run runs a sub-command until it ends. Its error contains the last lines of the
// output without secrets. When ctx ends, the program and its children are
// terminated, and killed after killDelay.
func (c CLI) run(ctx context.Context, environment []string, args ...string) error {
	ctx, cancel := c.withTimeout(ctx)
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
		// Its children may still run.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	text := bootstrapdata.Tail(output.String(), maxTail)
	if text != "" {
		err = errors.Join(err, errors.New(text))
	}
	return fmt.Errorf("running %s %s: %w", program, args[0], err)
}

// withTimeout is context.WithTimeout with the CLI's clock.
func (c CLI) withTimeout(ctx context.Context) (context.Context, func()) {
	clock := c.Clock
	if clock == nil {
		clock = retry.System{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if clock.Wait(ctx, timeout) == nil {
			cancel(fmt.Errorf("it took more than %s", timeout))
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-over
	}
}

// tail is a writer that keeps the last maxOutput bytes. It is safe for concurrent
// use.
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

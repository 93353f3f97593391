package update

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Limits for the start of a new program.
const (
	probeTimeout = 30 * time.Second
	probeDelay   = time.Second
	maxOutput    = 4 << 10
	busyPause    = 200 * time.Millisecond
	busyAttempts = 10
)

// ProbeVersion runs "PATH version" with an empty environment and returns the
// version that it prints.
func ProbeVersion(ctx context.Context, clock retry.Clock, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		out, err := output(ctx, path)
		// Another child of this process may have inherited the file, open for writing, and
		// has it until its exec.
		if errors.Is(err, syscall.ETXTBSY) && attempt < busyAttempts && clock.Wait(ctx, busyPause) == nil {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("running %s version: %w", path, errors.Join(context.Cause(ctx), err))
		}
		fields := strings.Fields(out)
		if len(fields) < 2 || fields[0] != "elemental-agent" {
			return "", fmt.Errorf("running %s version: it printed %.100q and is no agent", path, out)
		}
		return fields[1], nil
	}
}

func output(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.WaitDelay = probeDelay
	cmd.Env = []string{}
	out := &beginning{}
	cmd.Stdout = out
	err := cmd.Run()
	return out.String(), err
}

// beginning stores the first maxOutput bytes.
type beginning struct{ kept bytes.Buffer }

func (b *beginning) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxOutput-b.kept.Len())])
	return len(p), nil
}

func (b *beginning) String() string { return b.kept.String() }

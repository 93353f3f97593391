package linux

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
)

// commandTimeout is the time limit of a command that has no other.
const commandTimeout = 30 * time.Second

// runner runs commands with time limits.
type runner struct{ commands oscommand.Runner }

func (r runner) run(ctx context.Context, timeout time.Duration, args ...string) error {
	_, err := r.output(ctx, timeout, args...)
	return err
}

func (r runner) output(ctx context.Context, timeout time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.commands.Run(ctx, "", args...)
}

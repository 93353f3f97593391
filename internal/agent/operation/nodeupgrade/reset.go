package nodeupgrade

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// CheckpointsFolder is the folder of checkpoints in the state directory.
const CheckpointsFolder = "checkpoints"

// ResetRunner is an operation.Runner that removes all checkpoints after the reset that it
// wraps, before the result is recorded: they have the keys of the former cluster. If that
// fails, the reset is resumed.
type ResetRunner struct {
	// Runner is the reset.
	operation.Runner

	Documents state.Files
}

// Run resets the host.
func (r *ResetRunner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	result, err := r.Runner.Run(ctx, op, progress)
	if err != nil || result.State != protocol.StateSucceeded {
		return result, err
	}
	if err := r.Documents.Remove(CheckpointsFolder); err != nil {
		return operation.Result{}, fmt.Errorf("removing checkpoints of upgrades: %w", err)
	}
	return result, nil
}

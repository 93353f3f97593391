package snapshot

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ResetRunner is an operation.Runner that removes all snapshots after the reset that it
// wraps, if the reset erases data disks too. Any other reset leaves them: they may be all
// that remains of a cluster. If the removal fails, the reset is resumed.
type ResetRunner struct {
	// Runner is the reset.
	operation.Runner

	Documents state.Files
}

// Run resets the host.
func (r *ResetRunner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	result, err := r.Runner.Run(ctx, op, progress)
	if err != nil || result.State != protocol.StateSucceeded || op.Erase == "" {
		return result, err
	}
	if err := r.Documents.Remove(Folder); err != nil {
		return operation.Result{}, fmt.Errorf("removing snapshots of etcd: %w", err)
	}
	return result, nil
}

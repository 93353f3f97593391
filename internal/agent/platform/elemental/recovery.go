package elemental

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// failureWait is the delay between a failed reset and the reboot into the active
// system. If the active system does not boot either, the boot loader may return to
// the recovery system, which then retries.
const failureWait = time.Minute

// Recovery runs in the recovery system. It performs the reset that the agent in the
// active system began. It does not connect to the manager; the agent in the active
// system reports the result.
type Recovery struct {
	System System
	CLI    CLI
	// StateDir is the agent's state directory, on the OEM partition.
	StateDir string
	Platform platform.Rebooter
	Commands oscommand.Runner
	Clock    retry.Clock
	Log      *slog.Logger
}

// outcome is the outcome of a reset in the recovery system.
type outcome struct {
	Failure string `json:"failure,omitempty"`
}

func outcomeDocument(files state.Files, op state.Operation) state.Document[outcome] {
	return state.Document[outcome]{Files: files, Name: op.Folder() + "/outcome.json"}
}

// Run resets the host and reboots it. If no reset was begun, an administrator has
// booted the recovery system, and Run waits until ctx ends.
func (r *Recovery) Run(ctx context.Context) error {
	op, found, err := r.findReset()
	if err != nil {
		return err
	}
	if !found {
		r.Log.Info("This is the recovery system, and no reset was begun: nothing to do")
		<-ctx.Done()
		return nil
	}
	r.Log.Info("Resetting this host", "id", op.ID, "cluster", op.ClusterName, "machine", op.MachineName)
	// No file on the OEM partition is open now, because the CLI unmounts it.
	if err := r.CLI.run(ctx, nil, "reset", "--reset-persistent"); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent is being stopped; the next start resets again
		}
		r.Log.Error("The reset failed", "error", err)
		if err := r.recordFailure(ctx, op, err); err != nil {
			r.Log.Error("Could not record why the reset failed", "error", err)
		}
		// If ctx ends the wait, it also ends the reboot.
		_ = r.Clock.Wait(ctx, failureWait)
	}
	err = r.Platform.Reboot(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the host goes down
	}
	return fmt.Errorf("rebooting into the active system: %w", err)
}

// findReset returns the reset that was begun. It closes the state directory before
// it returns.
func (r *Recovery) findReset() (op state.Operation, found bool, err error) {
	if _, err := os.Stat(r.StateDir); errors.Is(err, os.ErrNotExist) {
		return op, false, nil
	}
	dir, err := state.NewDir(r.StateDir)
	if err != nil {
		return op, false, err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return op, false, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	store, err := state.Open(dir)
	if err != nil {
		return op, false, err
	}
	for _, op := range store.Operations() {
		if op.Type != protocol.OperationReset || op.Done() {
			continue
		}
		at, err := resetDocument(store.Documents(), op).Load()
		if err != nil {
			return op, false, err
		}
		if at.Step == stepRecovery {
			return op, true, nil
		}
	}
	return op, false, nil
}

// recordFailure records the reason of a failure for the agent in the active system.
func (r *Recovery) recordFailure(ctx context.Context, op state.Operation, failure error) error {
	if !r.isOEMMounted() {
		if _, err := r.Commands.Run(ctx, "", "mount", OEMDir); err != nil {
			return err
		}
	}
	dir, err := state.NewDir(r.StateDir)
	if err != nil {
		return err
	}
	return outcomeDocument(dir, op).Save(outcome{Failure: failure.Error()})
}

func (r *Recovery) isOEMMounted() bool {
	points, err := mounts.Points(r.System.path("/"))
	return err == nil && slices.Contains(points, OEMDir)
}

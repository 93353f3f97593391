package reboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Step is the only step of a Reboot.
const Step = "reboot"

// MaxAttempts is how often a reboot is requested before the operation fails.
const MaxAttempts = 3

// Runner is the operation.Runner of Reboot operations.
type Runner struct {
	Documents state.Files
	Platform  platform.Rebooter
	// BootID identifies the running boot.
	BootID string
	Log    *slog.Logger
}

// record is the progress of a reboot, on disk.
type record struct {
	// BootID is the boot that the reboot must end.
	BootID   string `json:"bootID"`
	Attempts int    `json:"attempts"`
	// Failure is the error of the last attempt.
	Failure string `json:"failure,omitempty"`
}

// Run requests the reboot, or succeeds if the host has rebooted. It records the boot that
// must end before it requests anything. In any other boot the operation is done, even if
// a power cut ended the recorded one.
func (r *Runner) Run(ctx context.Context, op state.Operation, step func(string)) (operation.Result, error) {
	document := state.Document[record]{Files: r.Documents, Name: op.Folder() + "/reboot.json"}
	at, err := document.Load()
	if err != nil {
		return operation.Result{}, err
	}
	if at.BootID != "" && at.BootID != r.BootID {
		return operation.Result{State: protocol.StateSucceeded}, nil
	}
	if at.Attempts >= MaxAttempts {
		return gaveUp(at), nil
	}
	at.BootID = r.BootID
	at.Attempts++
	if err := document.Save(at); err != nil {
		return operation.Result{}, err
	}
	step(Step)
	r.Log.Info("Rebooting, as was asked for", "id", op.ID, "attempt", at.Attempts)
	err = r.Platform.Reboot(ctx)
	if ctx.Err() != nil {
		return operation.Result{}, context.Cause(ctx)
	}
	if err == nil {
		err = errors.New("the host is still running")
	}
	at.Failure = err.Error()
	if err := document.Save(at); err != nil {
		return operation.Result{}, err
	}
	if at.Attempts >= MaxAttempts {
		return gaveUp(at), nil
	}
	// The manager may withdraw the operation: nothing was done.
	return operation.Result{}, fmt.Errorf("%w: rebooting: %w", operation.ErrNothingDone, err)
}

// Abort does nothing: a reboot cannot be cancelled.
func (r *Runner) Abort(state.Operation) error { return nil }

// Cleanup removes the record.
func (r *Runner) Cleanup(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

// gaveUp is the result after MaxAttempts.
func gaveUp(at record) operation.Result {
	seen := at.Failure
	if seen == "" {
		seen = "the agent was started again without a reboot"
	}
	return operation.Result{
		State: protocol.StateFailed, Step: Step,
		Message: fmt.Sprintf("asked for a reboot %d times, and the host still runs: %s", at.Attempts, seen),
	}
}

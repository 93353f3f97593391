package elemental

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a reset.
const (
	stepStop     = "stop"
	stepRecovery = "recovery"
)

// ResetRunner is the operation.Runner of Reset operations. It stops the node,
// boots the recovery system, which resets the host (see Recovery), and verifies
// the result in the active system. A clean host that never ran bootstrap data is
// not reset.
type ResetRunner struct {
	System     System
	Documents  state.Files
	Bootstraps operation.Bootstraps
	Platform   platform.Platform
	Commands   oscommand.Runner
	// BootID identifies the running boot.
	BootID string
	Log    *slog.Logger
}

// resetProgress is the progress of a reset. It is on the OEM partition, where the
// recovery system can read it.
type resetProgress struct {
	// Step is the step that may have been begun: stepStop or stepRecovery.
	Step string `json:"step"`
	// Before is the system that was active before the reset.
	Before deployment `json:"before"`
	// BootID is the boot that the reboot into the recovery system must end.
	BootID string `json:"bootID,omitempty"`
	// Attempts counts the boots into the recovery system.
	Attempts int `json:"attempts,omitempty"`
}

func resetDocument(files state.Files, op state.Operation) state.Document[resetProgress] {
	return state.Document[resetProgress]{Files: files, Name: op.Folder() + "/recovery.json"}
}

// Run resets the host, from the recorded step.
func (r *ResetRunner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	document := resetDocument(r.Documents, op)
	at, err := document.Load()
	if err != nil {
		return operation.Result{}, err
	}
	executed, err := r.Bootstraps.Executed()
	if err != nil {
		return operation.Result{}, err
	}
	if at.Step == "" {
		found, err := r.Platform.Cleanliness(ctx)
		if err == nil && found.Clean && len(executed) == 0 {
			return operation.Result{State: protocol.StateSucceeded, Message: "there was nothing to clean"}, nil
		}
		if at.Before, err = r.System.activeDeployment(); err != nil {
			return operation.Failed(stepStop, err), nil
		}
		at.Step = stepStop
		if err := document.Save(at); err != nil {
			return operation.Result{}, err
		}
	}
	if at.Step == stepStop {
		progress(stepStop)
		if err := r.Platform.Stop(ctx); err != nil {
			return operation.FailedUnlessStopped(ctx, stepStop, err)
		}
		at.Step = stepRecovery
		if err := document.Save(at); err != nil {
			return operation.Result{}, err
		}
	}
	isReset, err := r.isReset(at)
	if err != nil {
		return operation.Failed(stepVerify, err), nil
	}
	if !isReset {
		return r.bootRecovery(ctx, op, &at, progress)
	}
	progress(stepVerify)
	return r.verify(ctx, executed)
}

// Abort does nothing: a reset is never superseded.
func (r *ResetRunner) Abort(state.Operation) error { return nil }

// Cleanup removes the record.
func (r *ResetRunner) Cleanup(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

// isReset reports whether the host was reset: it runs another boot, and another
// deployment is active.
func (r *ResetRunner) isReset(at resetProgress) (bool, error) {
	if at.BootID == "" || at.BootID == r.BootID {
		return false, nil
	}
	current, err := r.System.activeDeployment()
	return current.Print != at.Before.Print, err
}

// bootRecovery boots the recovery system, or fails if former boots into it did not
// reset the host.
func (r *ResetRunner) bootRecovery(ctx context.Context, op state.Operation, at *resetProgress, progress func(string)) (operation.Result, error) {
	document := resetDocument(r.Documents, op)
	reason, err := r.failureReason(op, *at)
	if err != nil {
		return operation.Result{}, err
	}
	if reason != "" {
		// The agent retries the operation later, with a new count.
		at.BootID, at.Attempts = "", 0
		if err := document.Save(*at); err != nil {
			return operation.Result{}, err
		}
		return operation.Failed(stepRecovery, errors.New(reason)), nil
	}
	at.Attempts, at.BootID = at.Attempts+1, r.BootID
	if err := document.Save(*at); err != nil {
		return operation.Result{}, err
	}
	progress(stepRecovery)
	if err := selectRecovery(ctx, r.Commands); err != nil {
		return operation.FailedUnlessStopped(ctx, stepRecovery, err)
	}
	r.Log.Info("Rebooting into the recovery system to reset this host", "id", op.ID)
	err = r.Platform.Reboot(ctx)
	if ctx.Err() != nil {
		return operation.Result{}, context.Cause(ctx)
	}
	return operation.Failed(stepRecovery, fmt.Errorf("rebooting into the recovery system: %w", err)), nil
}

// failureReason returns why a boot into the recovery system did not reset the
// host. It is blank if there was no such boot, or if another attempt may help.
func (r *ResetRunner) failureReason(op state.Operation, at resetProgress) (string, error) {
	if at.BootID == "" || at.BootID == r.BootID {
		return "", nil
	}
	document := outcomeDocument(r.Documents, op)
	recorded, err := document.Load()
	if err != nil {
		return "", err
	}
	if recorded.Failure != "" {
		return recorded.Failure, document.Save(outcome{})
	}
	if at.Attempts >= maxAttempts {
		return fmt.Sprintf("the recovery system was chosen for the next boot %d times, and it did not reset the host: "+
			"it did not boot, or no agent runs in it", at.Attempts), nil
	}
	return "", nil
}

// selectRecovery makes the boot loader choose the recovery system for one boot.
func selectRecovery(ctx context.Context, commands oscommand.Runner) error {
	editor := "grub2-editenv"
	if _, err := exec.LookPath(editor); err != nil {
		editor = "grub-editenv"
	}
	if _, err := commands.Run(ctx, "", editor, grubEnvironment, "set", "next_entry=recovery"); err != nil {
		return fmt.Errorf("choosing the recovery system for the next boot: %w", err)
	}
	return nil
}

// verify undoes the changes of bootstraps on the OEM partition, which a reset does
// not format, and checks that the host is clean.
func (r *ResetRunner) verify(ctx context.Context, executed []string) (operation.Result, error) {
	var failures []error
	for _, folder := range executed {
		failures = append(failures, r.Bootstraps.Undo(ctx, folder))
	}
	if ctx.Err() != nil {
		return operation.Result{}, context.Cause(ctx)
	}
	found, err := r.Platform.Cleanliness(ctx)
	if err != nil {
		return operation.FailedUnlessStopped(ctx, stepVerify, err)
	}
	if !found.Clean {
		failures = append(failures, errors.New("left behind: "+strings.Join(found.Leftovers, ", ")))
	}
	if err := errors.Join(failures...); err != nil {
		return operation.FailedUnlessStopped(ctx, stepVerify, err)
	}
	for _, folder := range executed {
		if err := r.Documents.Remove(folder); err != nil {
			return operation.Result{}, err
		}
	}
	return operation.Result{State: protocol.StateSucceeded}, nil
}

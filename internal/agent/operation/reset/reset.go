package reset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Runner is the operation.Runner of Reset operations.
type Runner struct {
	Documents  state.Files
	Platform   platform.Platform
	Bootstraps operation.Bootstraps
	// Installation is removed after the node; nil on a host that installs no bundles.
	Installation Installation
	// BootID identifies the running boot.
	BootID string
	Log    *slog.Logger
}

// Installation is the bundle of Kubernetes that was installed on the host.
type Installation interface {
	// Remove removes it, and does nothing on a host without one. It may be repeated.
	Remove(ctx context.Context) error
}

// Phases of a reset, in order.
const (
	phaseStop   = "stop"
	phaseReboot = "reboot"
	phaseClean  = "clean"
	phaseVerify = "verify"
)

// maxReboots bounds how often an attempt requests a reboot, if the agent starts again in
// the same boot.
const maxReboots = 2

// record is the progress of a reset, on disk.
type record struct {
	// Phase is the one that may have been begun.
	Phase string `json:"phase"`
	// BootID is the boot that the reboot must end.
	BootID  string `json:"bootID,omitempty"`
	Reboots int    `json:"reboots,omitempty"`
	// Note explains a missing reboot.
	Note string `json:"note,omitempty"`
}

// Run resets the host, from the recorded phase.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	document := state.Document[record]{Files: r.Documents, Name: op.Folder() + "/reset.json"}
	at, err := document.Load()
	if err != nil {
		return operation.Result{}, err
	}
	executed, err := r.Bootstraps.Executed()
	if err != nil {
		return operation.Result{}, err
	}
	if at.Phase == "" {
		found, err := r.Platform.Cleanliness(ctx)
		if err == nil && found.Clean && len(executed) == 0 {
			return operation.Result{State: protocol.StateSucceeded, Message: "there was nothing to clean"}, nil
		}
		at.Phase = phaseStop
		if err := document.Save(at); err != nil {
			return operation.Result{}, err
		}
	}
	if at.Phase == phaseStop {
		progress(phaseStop)
		if err := r.Platform.Stop(ctx); err != nil {
			return operation.FailedUnlessStopped(ctx, phaseStop, err)
		}
		at.Phase, at.BootID = phaseReboot, r.BootID
		if err := document.Save(at); err != nil {
			return operation.Result{}, err
		}
	}
	if at.Phase == phaseReboot {
		if at.BootID == r.BootID {
			progress(phaseReboot)
		}
		if err := r.reboot(ctx, document, &at); err != nil {
			return operation.Result{}, err
		}
	}
	result, err := r.clean(ctx, executed, at, progress)
	if err == nil && result.State == protocol.StateFailed && at.Note != "" {
		// The next attempt may be able to reboot, and a reboot may be all that is missing.
		at.Phase = phaseReboot
		err = document.Save(at)
	}
	return result, err
}

// Abort does nothing: a reset is never superseded.
func (r *Runner) Abort(state.Operation) error { return nil }

// Cleanup removes the record.
func (r *Runner) Cleanup(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

// reboot returns nil once the host has rebooted or cannot reboot.
func (r *Runner) reboot(ctx context.Context, document state.Document[record], at *record) error {
	at.Note = ""
	if at.BootID == r.BootID {
		err := r.requestReboot(ctx, document, at)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if state.IsWriteError(err) {
			return err
		}
		// The next attempt requests it again.
		at.Reboots, at.Note = 0, fmt.Sprintf("cleaned without a reboot: %v", err)
		r.Log.Warn("Could not reboot", "error", err)
	}
	at.Phase = phaseClean
	return document.Save(*at)
}

// requestReboot returns why the host does not reboot.
func (r *Runner) requestReboot(ctx context.Context, document state.Document[record], at *record) error {
	if at.Reboots >= maxReboots {
		return fmt.Errorf("the agent was started again %d times, and the host still ran", at.Reboots)
	}
	at.Reboots++
	if err := document.Save(*at); err != nil {
		return err
	}
	r.Log.Info("Rebooting to reset this host")
	return r.Platform.Reboot(ctx)
}

// clean removes leftovers, undoes all bootstraps, removes the installed bundle, whose
// programs did the former, and verifies the result.
func (r *Runner) clean(ctx context.Context, executed []string, at record, progress func(string)) (operation.Result, error) {
	progress(phaseClean)
	keep, err := r.preexistingPaths(executed)
	if err != nil {
		return operation.Result{}, err
	}
	failures := []error{r.Platform.Clean(ctx, keep)}
	for _, folder := range executed {
		failures = append(failures, r.Bootstraps.Undo(ctx, folder))
	}
	if r.Installation != nil && ctx.Err() == nil {
		failures = append(failures, r.Installation.Remove(ctx))
	}
	if ctx.Err() != nil {
		return operation.Result{}, context.Cause(ctx)
	}
	progress(phaseVerify)
	found, err := r.Platform.Cleanliness(ctx)
	if err != nil {
		return operation.FailedUnlessStopped(ctx, phaseVerify, err)
	}
	if failure := errors.Join(failures...); !found.Clean || failure != nil {
		return operation.FailedUnlessStopped(ctx, phaseClean, notCleanError(found, failure, at.Note))
	}
	for _, folder := range executed {
		if err := r.Documents.Remove(folder); err != nil {
			return operation.Result{}, err
		}
	}
	return operation.Result{State: protocol.StateSucceeded, Message: at.Note}, nil
}

// preexistingPaths are the paths that existed before every bootstrap; nil if one
// bootstrap recorded none.
func (r *Runner) preexistingPaths(executed []string) ([]string, error) {
	var paths []string
	for i, folder := range executed {
		recorded, err := operation.PreexistingDocument(r.Documents, folder).Load()
		if err != nil {
			return nil, err
		}
		if recorded == nil {
			return nil, nil
		}
		if i == 0 {
			paths = append([]string{}, recorded.Paths...)
			continue
		}
		paths = slices.DeleteFunc(paths, func(path string) bool { return !slices.Contains(recorded.Paths, path) })
	}
	return paths, nil
}

// notCleanError describes why the host is not clean.
func notCleanError(found protocol.Cleanliness, failure error, note string) error {
	var parts []string
	if !found.Clean {
		parts = append(parts, "left behind: "+strings.Join(found.Leftovers, ", "))
	}
	if failure != nil {
		parts = append(parts, strings.ReplaceAll(failure.Error(), "\n", "; "))
	}
	if note != "" {
		parts = append(parts, note)
	}
	return errors.New(strings.Join(parts, "; "))
}

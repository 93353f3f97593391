package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Resetter is the host's part of a reset. All of it may be repeated.
type Resetter interface {
	// Stop ends the node and removes what would start it again.
	Stop(ctx context.Context) error
	// Reboot returns only if ctx ended, as it does when the system goes down,
	// or if the host didn't reboot.
	Reboot(ctx context.Context) error
	// Clean removes what a node leaves behind. keep are the paths that Present
	// found before the bootstrap; nil keeps all that may have been there.
	Clean(ctx context.Context, keep []string) error
}

// Undoer takes back what bootstrap data did.
type Undoer interface {
	// Executed lists the folders of all jobs that were begun, latest first.
	Executed() ([]string, error)
	// Undo takes one back; it may be repeated.
	Undo(ctx context.Context, folder string) error
}

// Reset runs Reset operations: stop the node, reboot, clean, verify. The
// reboot ends at a stroke what no command ends reliably: containers, mounts,
// interfaces, packet filter rules, routes. A host that never ran anything is
// only verified.
type Reset struct {
	Store    *state.Store
	Host     Resetter
	Undoer   Undoer
	Observer Observer
	// BootID tells a new boot from the one in which the reset began.
	BootID string
	Log    *slog.Logger
}

// Phases of a reset, in order.
const (
	phaseStop   = "stop"
	phaseReboot = "reboot"
	phaseClean  = "clean"
	phaseVerify = "verify"
)

// maxReboots is how often a reboot is asked for, if the agent is started again
// without one.
const maxReboots = 2

// resetProgress is how far a reset is.
type resetProgress struct {
	// Phase is the one that may have been begun.
	Phase string `json:"phase"`
	// BootID is the boot that is to end.
	BootID  string `json:"bootID,omitempty"`
	Reboots int    `json:"reboots,omitempty"`
	// Note says why there was no reboot.
	Note string `json:"note,omitempty"`
}

// Run brings the host back, from the phase that was recorded.
func (r *Reset) Run(ctx context.Context, op state.Operation, progress func(string)) (Result, error) {
	document := state.Document[resetProgress]{Files: r.Store.Documents(), Name: op.Folder() + "/reset.json"}
	at, err := document.Load()
	if err != nil {
		return Result{}, err
	}
	executed, err := r.Undoer.Executed()
	if err != nil {
		return Result{}, err
	}
	if at.Phase == "" {
		found, err := r.Observer.Cleanliness(ctx)
		if err == nil && found.Clean && len(executed) == 0 {
			return Result{State: protocol.StateSucceeded, Message: "there was nothing to clean"}, nil
		}
		at.Phase = phaseStop
		if err := document.Save(at); err != nil {
			return Result{}, err
		}
	}
	if at.Phase == phaseStop {
		progress(phaseStop)
		if err := r.Host.Stop(ctx); err != nil {
			return interruptible(ctx, phaseStop, err)
		}
		at.Phase, at.BootID = phaseReboot, r.BootID
		if err := document.Save(at); err != nil {
			return Result{}, err
		}
	}
	if at.Phase == phaseReboot {
		if at.BootID == r.BootID {
			progress(phaseReboot)
		}
		if err := r.reboot(ctx, document, &at); err != nil {
			return Result{}, err
		}
	}
	result, err := r.clean(ctx, executed, at, progress)
	if err == nil && result.State == protocol.StateFailed && at.Note != "" {
		// A reboot may be possible by the next attempt, and be all that is missing.
		at.Phase = phaseReboot
		err = document.Save(at)
	}
	return result, err
}

// Abort does nothing: a reset is never given up.
func (r *Reset) Abort(state.Operation) error { return nil }

// Settle drops the record of the phases.
func (r *Reset) Settle(op state.Operation) error { return r.Store.Documents().Remove(op.Folder()) }

// reboot returns nil when the host has rebooted or won't.
func (r *Reset) reboot(ctx context.Context, document state.Document[resetProgress], at *resetProgress) error {
	if at.BootID == r.BootID && at.Reboots < maxReboots {
		at.Reboots++
		if err := document.Save(*at); err != nil {
			return err
		}
		r.Log.Info("Rebooting to reset this host")
		err := r.Host.Reboot(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at.Reboots-- // there was none
		at.Note = fmt.Sprintf("cleaned without a reboot: %v", err)
		r.Log.Warn("Could not reboot", "error", err)
	}
	if at.BootID != r.BootID {
		at.Note = ""
	}
	at.Phase = phaseClean
	return document.Save(*at)
}

// clean cleans, takes the bootstrap back, and looks whether that was enough.
func (r *Reset) clean(ctx context.Context, executed []string, at resetProgress, progress func(string)) (Result, error) {
	progress(phaseClean)
	keep, err := r.keep(executed)
	if err != nil {
		return Result{}, err
	}
	failures := []error{r.Host.Clean(ctx, keep)}
	for _, folder := range executed {
		failures = append(failures, r.Undoer.Undo(ctx, folder))
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	progress(phaseVerify)
	found, err := r.Observer.Cleanliness(ctx)
	if err != nil {
		return interruptible(ctx, phaseVerify, err)
	}
	if problem := errors.Join(failures...); !found.Clean || problem != nil {
		return interruptible(ctx, phaseClean, leftBehind(found, problem, at.Note))
	}
	for _, folder := range executed {
		if err := r.Store.Documents().Remove(folder); err != nil {
			return Result{}, err
		}
	}
	return Result{State: protocol.StateSucceeded, Message: at.Note}, nil
}

// keep are the paths that were there before every bootstrap.
func (r *Reset) keep(executed []string) ([]string, error) {
	var keep []string
	for i, folder := range executed {
		before, err := snapshot(r.Store.Documents(), folder).Load()
		if err != nil {
			return nil, err
		}
		if before == nil {
			return nil, nil
		}
		if i == 0 {
			keep = append([]string{}, before.Present...)
			continue
		}
		keep = slices.DeleteFunc(keep, func(name string) bool { return !slices.Contains(before.Present, name) })
	}
	return keep, nil
}

// before is what a host had that a bootstrap or the node's pods may add to.
type before struct {
	Present []string `json:"present"`
}

func snapshot(files state.Files, folder string) state.Document[*before] {
	return state.Document[*before]{Files: files, Name: folder + "/before.json"}
}

func leftBehind(found protocol.Cleanliness, problem error, note string) error {
	var parts []string
	if !found.Clean {
		parts = append(parts, "left behind: "+strings.Join(found.Leftovers, ", "))
	}
	if problem != nil {
		parts = append(parts, strings.ReplaceAll(problem.Error(), "\n", "; "))
	}
	if note != "" {
		parts = append(parts, note)
	}
	return errors.New(strings.Join(parts, "; "))
}

// interruptible is a failure, unless the agent is being stopped.
func interruptible(ctx context.Context, step string, err error) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, err
	}
	return failed(step, err), nil
}

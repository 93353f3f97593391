package elemental

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a reset.
const (
	stepStop     = "stop"
	stepRecovery = "recovery"
)

// Stopper stops the node and removes what would start it again.
type Stopper interface {
	Stop(ctx context.Context) error
}

// Reset runs Reset operations: stop the node, boot the recovery system, which
// resets the host (see Recovery), and look at what came up. A host that never ran
// anything is only looked at.
type Reset struct {
	System   System
	Store    *state.Store
	Undoer   agent.Undoer
	Observer agent.Observer
	Node     Stopper
	Host     Rebooter
	Commands host.Commander
	// BootID tells a new boot from the one in which the reset began.
	BootID string
	Log    *slog.Logger
}

// resetProgress is how far a reset is. It lies on the OEM partition, where the
// recovery system finds it.
type resetProgress struct {
	// Step that may have been begun: stepStop or stepRecovery.
	Step string `json:"step"`
	// Before is the system that was active before.
	Before deployed `json:"before"`
	// BootID is the boot that is to end.
	BootID   string `json:"bootID,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
}

func resetDocument(files state.Files, op state.Operation) state.Document[resetProgress] {
	return state.Document[resetProgress]{Files: files, Name: op.Folder() + "/recovery.json"}
}

// Run resets, from the step that was recorded.
func (r *Reset) Run(ctx context.Context, op state.Operation, progress func(string)) (agent.Result, error) {
	document := resetDocument(r.Store.Documents(), op)
	at, err := document.Load()
	if err != nil {
		return agent.Result{}, err
	}
	executed, err := r.Undoer.Executed()
	if err != nil {
		return agent.Result{}, err
	}
	if at.Step == "" {
		found, err := r.Observer.Cleanliness(ctx)
		if err == nil && found.Clean && len(executed) == 0 {
			return agent.Result{State: protocol.StateSucceeded, Message: "there was nothing to clean"}, nil
		}
		if at.Before, err = r.System.deployed(); err != nil {
			return failed(stepStop, err), nil
		}
		at.Step = stepStop
		if err := document.Save(at); err != nil {
			return agent.Result{}, err
		}
	}
	if at.Step == stepStop {
		progress(stepStop)
		if err := r.Node.Stop(ctx); err != nil {
			return interruptible(ctx, stepStop, err)
		}
		at.Step = stepRecovery
		if err := document.Save(at); err != nil {
			return agent.Result{}, err
		}
	}
	took, err := r.took(at)
	if err != nil {
		return failed(stepVerify, err), nil
	}
	if !took {
		return r.recover(ctx, op, &at, progress)
	}
	progress(stepVerify)
	return r.verify(ctx, executed)
}

// Abort does nothing: a reset is never given up.
func (r *Reset) Abort(state.Operation) error { return nil }

// Settle drops the record.
func (r *Reset) Settle(op state.Operation) error { return r.Store.Documents().Remove(op.Folder()) }

// took reports whether the reset took place: another boot, and another deployment.
func (r *Reset) took(at resetProgress) (bool, error) {
	if at.BootID == "" || at.BootID == r.BootID {
		return false, nil
	}
	now, err := r.System.deployed()
	return now.Print != at.Before.Print, err
}

// recover boots the recovery system, or tells why that did not help.
func (r *Reset) recover(ctx context.Context, op state.Operation, at *resetProgress, progress func(string)) (agent.Result, error) {
	document := resetDocument(r.Store.Documents(), op)
	why, err := r.whyNot(op, *at)
	if err != nil {
		return agent.Result{}, err
	}
	if why != "" {
		// The agent tries again after a while; the count begins anew then.
		at.BootID, at.Attempts = "", 0
		if err := document.Save(*at); err != nil {
			return agent.Result{}, err
		}
		return failed(stepRecovery, errors.New(why)), nil
	}
	at.Attempts, at.BootID = at.Attempts+1, r.BootID
	if err := document.Save(*at); err != nil {
		return agent.Result{}, err
	}
	progress(stepRecovery)
	if err := bootRecovery(ctx, r.Commands); err != nil {
		return interruptible(ctx, stepRecovery, err)
	}
	r.Log.Info("Rebooting into the recovery system to reset this host", "id", op.ID)
	err = r.Host.Reboot(ctx)
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	return failed(stepRecovery, fmt.Errorf("rebooting into the recovery system: %w", err)), nil
}

// whyNot tells why a boot into the recovery system came to nothing; blank: there
// was none, or there is no reason yet to give up.
func (r *Reset) whyNot(op state.Operation, at resetProgress) (string, error) {
	if at.BootID == "" || at.BootID == r.BootID {
		return "", nil
	}
	noted := outcomeDocument(r.Store.Documents(), op)
	came, err := noted.Load()
	if err != nil {
		return "", err
	}
	if came.Failure != "" {
		return came.Failure, noted.Save(outcome{})
	}
	if at.Attempts >= maxAttempts {
		return fmt.Sprintf("the recovery system was chosen for the next boot %d times, and it did not reset the host: "+
			"it did not boot, or no agent runs in it", at.Attempts), nil
	}
	return "", nil
}

// bootRecovery has the boot loader choose the recovery system, once.
func bootRecovery(ctx context.Context, commands host.Commander) error {
	editor := "grub2-editenv"
	if _, err := exec.LookPath(editor); err != nil {
		editor = "grub-editenv"
	}
	if _, err := commands.Run(ctx, "", editor, grubEnvironment, "set", "next_entry=recovery"); err != nil {
		return fmt.Errorf("choosing the recovery system for the next boot: %w", err)
	}
	return nil
}

// verify takes back what bootstraps put on the OEM partition, which a reset leaves
// alone, and looks whether the host is clean.
func (r *Reset) verify(ctx context.Context, executed []string) (agent.Result, error) {
	var failures []error
	for _, folder := range executed {
		failures = append(failures, r.Undoer.Undo(ctx, folder))
	}
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	found, err := r.Observer.Cleanliness(ctx)
	if err != nil {
		return interruptible(ctx, stepVerify, err)
	}
	if !found.Clean {
		failures = append(failures, errors.New("left behind: "+strings.Join(found.Leftovers, ", ")))
	}
	if err := errors.Join(failures...); err != nil {
		return interruptible(ctx, stepVerify, err)
	}
	for _, folder := range executed {
		if err := r.Store.Documents().Remove(folder); err != nil {
			return agent.Result{}, err
		}
	}
	return agent.Result{State: protocol.StateSucceeded}, nil
}

// interruptible is a failure, unless the agent is being stopped.
func interruptible(ctx context.Context, step string, err error) (agent.Result, error) {
	if ctx.Err() != nil {
		return agent.Result{}, err
	}
	return failed(step, err), nil
}

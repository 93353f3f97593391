package reboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Step is what a Reboot is seen doing.
const Step = "reboot"

// MaxAttempts is how often a reboot is asked for before the operation fails.
const MaxAttempts = 3

// Host reboots.
type Host interface {
	// Reboot returns only if ctx ended, as it does when the system goes down,
	// or if the host didn't reboot.
	Reboot(ctx context.Context) error
}

// Runner is the agent.Runner of Reboot operations.
type Runner struct {
	Documents state.Files
	Host      Host
	// BootID tells a new boot from the one in which the reboot was asked for.
	BootID string
	Log    *slog.Logger
}

// progress is how far a reboot is.
type progress struct {
	// BootID is the boot that is to end.
	BootID   string `json:"bootID"`
	Attempts int    `json:"attempts"`
	// Failure is what came of the last attempt.
	Failure string `json:"failure,omitempty"`
}

// Run asks for the reboot, or finds that it took place. The boot that is to
// end is durable before anything is asked for: in another boot the operation
// is done, also if it was a power cut that ended the former one.
func (r *Runner) Run(ctx context.Context, op state.Operation, step func(string)) (agent.Result, error) {
	document := state.Document[progress]{Files: r.Documents, Name: op.Folder() + "/reboot.json"}
	at, err := document.Load()
	if err != nil {
		return agent.Result{}, err
	}
	if at.BootID != "" && at.BootID != r.BootID {
		return agent.Result{State: protocol.StateSucceeded}, nil
	}
	if at.Attempts >= MaxAttempts {
		return gaveUp(at), nil
	}
	at.BootID = r.BootID
	at.Attempts++
	if err := document.Save(at); err != nil {
		return agent.Result{}, err
	}
	step(Step)
	r.Log.Info("Rebooting, as was asked for", "id", op.ID, "attempt", at.Attempts)
	err = r.Host.Reboot(ctx)
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	if err == nil {
		err = errors.New("the host is still running")
	}
	at.Failure = err.Error()
	if err := document.Save(at); err != nil {
		return agent.Result{}, err
	}
	if at.Attempts >= MaxAttempts {
		return gaveUp(at), nil
	}
	// A request that is withdrawn meanwhile need not be kept.
	return agent.Result{}, fmt.Errorf("%w: rebooting: %w", agent.ErrNothingDone, err)
}

// Abort does nothing: a reboot that the system accepted can't be called back.
func (r *Runner) Abort(state.Operation) error { return nil }

// Settle drops the record of the boot.
func (r *Runner) Settle(op state.Operation) error { return r.Documents.Remove(op.Folder()) }

func gaveUp(at progress) agent.Result {
	seen := at.Failure
	if seen == "" {
		seen = "the agent was started again without a reboot"
	}
	return agent.Result{
		State: protocol.StateFailed, Step: Step,
		Message: fmt.Sprintf("asked for a reboot %d times, and the host still runs: %s", at.Attempts, seen),
	}
}

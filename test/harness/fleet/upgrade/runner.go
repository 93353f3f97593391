package upgrade

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of an upgrade; those after stepKubeadm are the Software's.
const (
	stepStage      = "stage"
	stepCheck      = "check"
	stepCheckpoint = "checkpoint"
	stepKubeadm    = "kubeadm"
	stepFinish     = "finish"
)

// planInterval is how often an upgrade that is held looks whether its host is to be reset.
const planInterval = 100 * time.Millisecond

// Runner is the operation.Runner of NodeUpgrade operations. After a power cut or a crash of
// the agent, it begins again with the first step.
type Runner struct {
	Stager agent.Stager
	// Plan is the plan of the manager.
	Plan func() state.Plan
	// Check fails the upgrade before anything has changed, During as one that was rolled back.
	// During may block until its ctx ends, which it does if the host is to be reset.
	Check, During func(ctx context.Context, to protocol.NodeUpgrade) error
	// Upgrade upgrades the host. It is called again after an error.
	Upgrade func(ctx context.Context, to protocol.NodeUpgrade, progress func(step string)) error
}

// Run is operation.Runner's.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	to := op.NodeUpgrade
	if to == nil {
		return failed(stepStage, protocol.UpgradeChangedNothing, errors.New("the plan has no bundle")), nil
	}
	progress(stepStage)
	if _, _, err := r.Stager.Stage(ctx, to.Bundle, progress); err != nil {
		return operation.Result{}, fmt.Errorf("staging the bundle: %w", err)
	}
	progress(stepCheck)
	if err := r.Check(ctx, *to); err != nil {
		return ended(ctx, stepCheck, protocol.UpgradeChangedNothing, err)
	}
	progress(stepCheckpoint)
	progress(stepKubeadm)
	if err := r.hold(ctx, *to); err != nil {
		return ended(ctx, stepKubeadm, protocol.UpgradeRolledBack, err)
	}
	if err := r.Upgrade(ctx, *to, progress); err != nil {
		return operation.Result{}, fmt.Errorf("upgrading the node: %w", err)
	}
	progress(stepFinish)
	return operation.Result{State: protocol.StateSucceeded}, nil
}

// hold calls During. It ends early if the host is to be reset.
func (r *Runner) hold(ctx context.Context, to protocol.NodeUpgrade) error {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for (retry.System{}).Wait(ctx, planInterval) == nil {
			if wanted := r.Plan().Operation; wanted != nil && wanted.Type == protocol.OperationReset {
				end(operation.ErrSuperseded)
			}
		}
	})
	err := r.During(ctx, to)
	if errors.Is(context.Cause(ctx), operation.ErrSuperseded) {
		err = operation.ErrSuperseded
	}
	end(nil)
	watching.Wait()
	return err
}

// Abort is operation.Runner's.
func (*Runner) Abort(state.Operation) error { return nil }

// Cleanup is operation.Runner's.
func (*Runner) Cleanup(state.Operation) error { return nil }

// ended returns the result of a failed upgrade, or an error if it was interrupted.
func ended(ctx context.Context, step string, outcome protocol.UpgradeOutcome, err error) (operation.Result, error) {
	if ctx.Err() != nil || errors.Is(err, operation.ErrSuperseded) {
		return operation.Result{}, err
	}
	return failed(step, outcome, err), nil
}

func failed(step string, outcome protocol.UpgradeOutcome, err error) operation.Result {
	return operation.Result{State: protocol.StateFailed, Step: step, Message: outcome.Message(err.Error())}
}

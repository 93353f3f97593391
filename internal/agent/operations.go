package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oplog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/progress"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// progressInterval is how often the step of a running operation is reported. Quick
// operations are reported only once, when they have ended.
const progressInterval = 10 * time.Second

// operationLoop runs one operation at a time: first those that were begun, then the one
// that the plan wants.
type operationLoop struct {
	logs    *oplog.Store
	store   *state.Store
	manager *connection.Manager
	runners map[protocol.OperationType]operation.Runner
	running *progress.Progress
	// afterOperation is called after each operation of a plan that was run, before its
	// result is reported.
	afterOperation func(context.Context)
	reporter       *reporter
	endpoint       *endpointUpkeep
	bundles        *bundleUpkeep
	snapshots      *snapshotUpkeep
	node           *node.Upkeep
	updater        Updater
	version        string
	clock          retry.Clock
	random         func() float64
	log            *slog.Logger
	// work is raised when there may be something to do.
	work signal.Signal

	mu sync.Mutex
	// supersede ends the running operation, which a reset supersedes; nil if none runs that
	// can end.
	supersede func()
}

// run runs operations until ctx ends.
func (l *operationLoop) run(ctx context.Context) error {
	backoff := retry.NewBackoff(l.random)
	for ctx.Err() == nil {
		op, found := l.next(l.store.Plan())
		if !found {
			backoff.Reset()
			l.bundles.wake.Raise()
			l.snapshots.wake.Raise()
			if err := l.idle(ctx); err != nil {
				return err
			}
			continue
		}
		retryOperation, err := l.execute(ctx, op)
		if err != nil {
			return err
		}
		if retryOperation {
			l.reporter.wake.Raise()
			l.work.WaitFor(ctx, l.clock, backoff.Next())
		} else {
			backoff.Reset()
		}
	}
	return nil
}

// isDue reports whether an operation is to be run or runs.
func (l *operationLoop) isDue() bool {
	_, found := l.next(l.store.Plan())
	return found
}

// next returns the operation to run. A reset that failed is retried until it succeeds
// or the plan wants another one.
func (l *operationLoop) next(plan state.Plan) (state.Operation, bool) {
	for _, op := range l.store.Operations() {
		if !op.Done() {
			isReplaced := op.State == protocol.StateFailed && plan.Operation != nil &&
				plan.Operation.Type == op.Type && plan.Operation.ID != op.ID
			if !isReplaced {
				return op, true
			}
		}
	}
	if plan.Operation == nil {
		return state.Operation{}, false
	}
	if op, found := l.store.Operation(plan.Operation.Type, plan.Operation.ID); found {
		return op, !op.Done()
	}
	return state.Operation{
		Operation: *plan.Operation, Hostname: plan.Desired.Hostname, ProviderID: plan.Desired.ProviderID,
		StartedAt: state.WithoutMonotonic(l.manager.Client().Now()),
	}, true
}

// isWanted reports whether the plan wants the operation.
func (l *operationLoop) isWanted(op state.Operation) bool {
	wanted := l.store.Plan().Operation
	return wanted != nil && wanted.Type == op.Type && wanted.ID == op.ID
}

// executeLocal implements Agent.Execute.
func (l *operationLoop) executeLocal(ctx context.Context, op state.Operation) (operation.Result, error) {
	op, err := l.store.Begin(op)
	if err != nil {
		return operation.Result{}, err
	}
	runner := l.runners[op.Type]
	result, err := l.runWithProgress(ctx, runner, op)
	if err != nil {
		return operation.Result{}, err
	}
	if err := l.recordResult(op, result); err != nil {
		return operation.Result{}, err
	}
	l.cleanup(op, runner)
	return result, nil
}

// execute runs an operation and records its result. retryOperation is true if the
// operation must run again.
func (l *operationLoop) execute(ctx context.Context, op state.Operation) (retryOperation bool, err error) {
	runner := l.runners[op.Type]
	if runner == nil {
		err := l.recordResult(op, operation.Result{
			State: protocol.StateUnsupported, Message: fmt.Sprintf("agent %s doesn't know how to do this", l.version),
		})
		l.reporter.wake.Raise()
		return false, err
	}
	if op, err = l.store.Begin(op); err != nil {
		return false, err
	}
	l.log.Info("Running an operation", "operation", op.Type, "id", op.ID, "cluster", op.ClusterName,
		"machine", op.MachineName, "attempt", op.Attempt)
	result, err := l.runSupersedable(ctx, runner, op)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case state.IsWriteError(err):
		return false, err
	case errors.Is(err, operation.ErrNothingDone) && !l.isWanted(op):
		l.log.Info("Dropped an operation that is no longer wanted; nothing was done", "id", op.ID, "error", err)
		return false, l.store.Forget(op)
	case err != nil:
		l.log.Warn("An operation must be retried", "id", op.ID, "error", err)
		l.logs.Add(op, "to be retried: "+err.Error())
		return true, nil
	}
	// One report has the result and the state of the host after the operation: the
	// manager must never see a host as not clean whose reset has succeeded.
	release := l.reporter.withhold(op)
	defer release()
	if err := l.recordResult(op, result); err != nil {
		return false, err
	}
	l.cleanup(op, runner)
	l.forgetNode(op)
	l.afterOperation(ctx)
	return result.State == protocol.StateFailed && op.Type == protocol.OperationReset, nil
}

// runWithProgress runs the operation and has its progress reported.
func (l *operationLoop) runWithProgress(ctx context.Context, runner operation.Runner, op state.Operation) (operation.Result, error) {
	ticking, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	l.running.Begin(op)
	l.logs.Begin(op)
	go func() {
		defer close(stopped)
		for l.clock.Wait(ticking, progressInterval) == nil {
			l.running.Tick()
			l.reporter.wake.Raise()
		}
	}()
	defer func() {
		stop()
		<-stopped
		l.running.End()
	}()
	return runner.Run(ctx, op, func(step string) {
		l.running.SetStep(step)
		l.logs.Add(op, step)
		l.log.Info("Operation proceeds", "id", op.ID, "step", step)
	})
}

// recordResult stores a result. The caller has it reported.
func (l *operationLoop) recordResult(op state.Operation, result operation.Result) error {
	// The log is complete before the result is recorded: after that, the operation is not run again.
	l.logs.End(op, result, oplog.Printed(l.runners[op.Type], op, l.log))
	op.State, op.Step, op.Erased = result.State, result.Step, result.Erased
	op.Message = truncate(result.Message, protocol.MaxMessageBytes)
	op.FinishedAt, op.Acknowledged = state.WithoutMonotonic(l.manager.Client().Now()), false
	if op.FinishedAt.Before(op.StartedAt) {
		op.FinishedAt = op.StartedAt
	}
	if err := l.store.Finish(op); err != nil {
		return err
	}
	if result.State == protocol.StateSucceeded {
		l.log.Info("Operation succeeded", "operation", op.Type, "id", op.ID, "note", op.Message)
	} else {
		l.log.Error("Operation ended", "operation", op.Type, "id", op.ID, "state", op.State, "step", op.Step, "message", op.Message)
	}
	return nil
}

// cleanupAll repeats every cleanup that a crash may have interrupted.
func (l *operationLoop) cleanupAll() {
	for _, op := range l.store.Operations() {
		if runner := l.runners[op.Type]; runner != nil && op.Done() {
			l.cleanup(op, runner)
		}
	}
}

// cleanup removes what an operation does not need once it is done.
func (l *operationLoop) cleanup(op state.Operation, runner operation.Runner) {
	if recorded, _ := l.store.Operation(op.Type, op.ID); !recorded.Done() {
		return
	}
	if err := runner.Cleanup(op); err != nil {
		l.log.Error("Could not clean up after an operation", "operation", op.Type, "id", op.ID, "error", err)
	}
}

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/guard"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// upgradeGrace is how long the running step of an upgrade may go on if the host is to be
// reset.
const upgradeGrace = 5 * time.Minute

// planChanged ends a bootstrap that a reset supersedes, and wakes the loop.
func (l *operationLoop) planChanged() {
	l.endSuperseded()
	l.work.Raise()
}

// isResetWanted reports whether the plan wants a reset that is not done and not refused.
func (l *operationLoop) isResetWanted() bool {
	wanted := l.store.Plan().Operation
	if wanted == nil || wanted.Type != protocol.OperationReset {
		return false
	}
	recorded, _ := l.store.Operation(wanted.Type, wanted.ID)
	refusal, err := guard.Refusal(l.store, state.Operation{Operation: *wanted})
	return !recorded.Done() && refusal == nil && err == nil
}

// endSuperseded ends a running bootstrap or upgrade if the plan wants a reset: a script may
// wait for something that never happens.
func (l *operationLoop) endSuperseded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.supersede != nil && l.isResetWanted() {
		l.supersede()
	}
}

// runSupersedable runs an operation. A bootstrap fails at once if a reset supersedes it, an
// upgrade of the Node after its step or upgradeGrace; nothing else in a plan interrupts an
// operation.
func (l *operationLoop) runSupersedable(ctx context.Context, runner operation.Runner, op state.Operation) (operation.Result, error) {
	var grace time.Duration
	switch op.Type {
	case protocol.OperationBootstrap:
	case protocol.OperationNodeUpgrade:
		grace = upgradeGrace
	default:
		return l.runWithProgress(ctx, runner, op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	supersede, stop := l.afterGrace(ctx, grace, func() { cancel(operation.ErrSuperseded) })
	defer stop()
	defer cancel(nil)
	l.mu.Lock()
	l.supersede = supersede
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.supersede = nil
		l.mu.Unlock()
	}()
	l.endSuperseded()
	result, err := l.runWithProgress(ctx, runner, op)
	isSuperseded := errors.Is(err, operation.ErrSuperseded) || errors.Is(context.Cause(ctx), operation.ErrSuperseded)
	if err == nil || !isSuperseded {
		return result, err
	}
	if err := runner.Abort(op); err != nil {
		l.log.Error("Could not abort an operation", "operation", op.Type, "id", op.ID, "error", err)
	}
	return operation.Result{State: protocol.StateFailed, Message: "ended: " + operation.ErrSuperseded.Error()}, nil
}

// afterGrace returns a function that calls end once, after the grace, unless ctx ends
// before. stop waits until nothing of it runs; ctx must have ended.
func (l *operationLoop) afterGrace(ctx context.Context, grace time.Duration, end func()) (begin, stop func()) {
	if grace == 0 {
		return end, func() {}
	}
	var once sync.Once
	var waiting sync.WaitGroup
	begin = func() {
		once.Do(func() {
			waiting.Go(func() {
				if l.clock.Wait(ctx, grace) == nil {
					end()
				}
			})
		})
	}
	return begin, waiting.Wait
}

package agent

import (
	"context"
	"errors"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// errSuperseded ends the bootstrap of a Machine that is being deleted: its script may
// wait for something that never happens.
var errSuperseded = errors.New("the manager wants this host reset")

// planChanged ends a bootstrap that a reset supersedes, and wakes the loop.
func (l *operationLoop) planChanged() {
	l.endSuperseded()
	l.work.raise()
}

// isResetWanted reports whether the plan wants a reset that is not done.
func (l *operationLoop) isResetWanted() bool {
	wanted := l.store.Plan().Operation
	if wanted == nil || wanted.Type != protocol.OperationReset {
		return false
	}
	recorded, _ := l.store.Operation(wanted.Type, wanted.ID)
	return !recorded.Done()
}

// endSuperseded ends a running bootstrap if the plan wants a reset.
func (l *operationLoop) endSuperseded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.supersede != nil && l.isResetWanted() {
		l.supersede(errSuperseded)
	}
}

// runSupersedable runs an operation. A bootstrap fails if a reset supersedes it; nothing
// else in a plan interrupts an operation.
func (l *operationLoop) runSupersedable(ctx context.Context, runner operation.Runner, op state.Operation) (operation.Result, error) {
	if op.Type != protocol.OperationBootstrap {
		return l.runWithProgress(ctx, runner, op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	l.supersede = cancel
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.supersede = nil
		l.mu.Unlock()
	}()
	l.endSuperseded()
	result, err := l.runWithProgress(ctx, runner, op)
	if err == nil || !errors.Is(context.Cause(ctx), errSuperseded) {
		return result, err
	}
	if err := runner.Abort(op); err != nil {
		l.log.Error("Could not abort a bootstrap", "id", op.ID, "error", err)
	}
	return operation.Result{State: protocol.StateFailed, Message: "ended: " + errSuperseded.Error()}, nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ErrNothingDone marks an error of a Runner that left the host untouched: if
// the manager no longer wants the operation, it can be forgotten.
var ErrNothingDone = errors.New("nothing was done")

// operate runs one operation at a time: first what was begun, then what the
// plan wants.
func (a *Agent) operate(ctx context.Context) error {
	backoff := a.backoff(retryMax)
	for ctx.Err() == nil {
		op, found := a.next()
		if !found {
			backoff.Reset()
			if err := a.idle(ctx); err != nil {
				return err
			}
			continue
		}
		again, err := a.execute(ctx, op)
		if err != nil {
			return err
		}
		if again {
			signal(a.report)
			a.pause(ctx, backoff.Next(), a.work)
		} else {
			backoff.Reset()
		}
	}
	return nil
}

// next chooses what to do. A reset that failed is tried again until it
// succeeds or the manager wants another one.
func (a *Agent) next() (state.Operation, bool) {
	plan := a.Store.Plan()
	for _, op := range a.Store.Operations() {
		if !op.Done() {
			superseded := op.State == protocol.StateFailed && plan.Operation != nil &&
				plan.Operation.Type == op.Type && plan.Operation.ID != op.ID
			if !superseded {
				return op, true
			}
		}
	}
	if plan.Operation == nil {
		return state.Operation{}, false
	}
	if op, known := a.Store.Operation(plan.Operation.Type, plan.Operation.ID); known {
		return op, !op.Done()
	}
	return state.Operation{
		Operation: *plan.Operation, Hostname: plan.Desired.Hostname, ProviderID: plan.Desired.ProviderID,
		StartedAt: utc(a.Link.Client().Now()),
	}, true
}

// wanted reports whether the plan asks for the operation.
func (a *Agent) wanted(op state.Operation) bool {
	want := a.Store.Plan().Operation
	return want != nil && want.Type == op.Type && want.ID == op.ID
}

// Execute runs an operation that no plan asked for, and records its result.
func (a *Agent) Execute(ctx context.Context, op state.Operation) (Result, error) {
	op, err := a.Store.Begin(op)
	if err != nil {
		return Result{}, err
	}
	runner := a.Runners[op.Type]
	result, err := a.watched(ctx, runner, op)
	if err != nil {
		return Result{}, err
	}
	if err := a.finish(op, result); err != nil {
		return Result{}, err
	}
	a.settle(op, runner)
	return result, nil
}

// execute runs an operation and records its result. again is true when there
// is none yet.
func (a *Agent) execute(ctx context.Context, op state.Operation) (again bool, err error) {
	runner := a.Runners[op.Type]
	if runner == nil {
		err := a.finish(op, Result{
			State: protocol.StateUnsupported, Message: fmt.Sprintf("agent %s doesn't know how to do this", a.Version),
		})
		signal(a.report)
		return false, err
	}
	if op, err = a.Store.Begin(op); err != nil {
		return false, err
	}
	a.Log.Info("Running an operation", "operation", op.Type, "id", op.ID, "cluster", op.ClusterName,
		"machine", op.MachineName, "attempt", op.Attempt)
	result, err := a.supersedable(ctx, runner, op)
	switch {
	case ctx.Err() != nil:
		return false, nil //nolint:nilerr // the agent is being stopped
	case isStateError(err):
		return false, err
	case errors.Is(err, ErrNothingDone) && !a.wanted(op):
		a.Log.Info("Dropped an operation that is no longer wanted; nothing had been done", "id", op.ID, "error", err)
		return false, a.Store.Forget(op)
	case err != nil:
		a.Log.Warn("An operation has to be tried again", "id", op.ID, "error", err)
		return true, nil
	}
	if err := a.finish(op, result); err != nil {
		return false, err
	}
	a.settle(op, runner)
	// A result and what the host looks like after it go into one report: a host
	// that was reset is clean, and nobody is to see it as anything else.
	a.learnFrom(ctx, op)
	signal(a.report)
	return result.State == protocol.StateFailed && op.Type == protocol.OperationReset, nil
}

// errSuperseded ends a bootstrap whose Machine is being deleted: its script may
// be waiting for something that never comes.
var errSuperseded = errors.New("the manager wants this host reset")

// resetWanted reports whether the plan asks for a reset that is not done.
func (a *Agent) resetWanted() bool {
	want := a.Store.Plan().Operation
	if want == nil || want.Type != protocol.OperationReset {
		return false
	}
	done, _ := a.Store.Operation(want.Type, want.ID)
	return !done.Done()
}

// endSuperseded ends a running bootstrap if the plan asks for a reset now.
func (a *Agent) endSuperseded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.supersede != nil && a.resetWanted() {
		a.supersede(errSuperseded)
	}
}

// supersedable runs an operation; a bootstrap ends when a reset is wanted.
// Nothing else that a plan says ends one.
func (a *Agent) supersedable(ctx context.Context, runner Runner, op state.Operation) (Result, error) {
	if op.Type != protocol.OperationBootstrap {
		return a.watched(ctx, runner, op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.mu.Lock()
	a.supersede = cancel
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.supersede = nil
		a.mu.Unlock()
	}()
	a.endSuperseded()
	result, err := a.watched(ctx, runner, op)
	if err == nil || !errors.Is(context.Cause(ctx), errSuperseded) {
		return result, err
	}
	if err := runner.Abort(op); err != nil {
		a.Log.Error("Could not end a bootstrap", "id", op.ID, "error", err)
	}
	return Result{State: protocol.StateFailed, Message: "ended: " + errSuperseded.Error()}, nil
}

// watched runs the operation and reports its progress.
func (a *Agent) watched(ctx context.Context, runner Runner, op state.Operation) (Result, error) {
	pacing, stop := context.WithCancel(ctx)
	paced := make(chan struct{})
	a.running.begin(op)
	go func() {
		defer close(paced)
		a.pace(pacing)
	}()
	defer func() {
		stop()
		<-paced
		a.running.end()
	}()
	return runner.Run(ctx, op, func(step string) {
		a.running.at(step)
		a.Log.Info("Operation proceeds", "id", op.ID, "step", step)
	})
}

// finish records a result; the caller has it reported.
func (a *Agent) finish(op state.Operation, result Result) error {
	op.State, op.Step, op.Message, op.Erased = result.State, result.Step, clip(result.Message), result.Erased
	op.FinishedAt, op.Acknowledged = utc(a.Link.Client().Now()), false
	if op.FinishedAt.Before(op.StartedAt) {
		op.FinishedAt = op.StartedAt
	}
	if err := a.Store.Finish(op); err != nil {
		return err
	}
	if result.State == protocol.StateSucceeded {
		a.Log.Info("Operation succeeded", "operation", op.Type, "id", op.ID, "note", op.Message)
	} else {
		a.Log.Error("Operation ended", "operation", op.Type, "id", op.ID, "state", op.State, "step", op.Step, "message", op.Message)
	}
	return nil
}

// settleAll settles what a crash may have kept from being settled.
func (a *Agent) settleAll() {
	for _, op := range a.Store.Operations() {
		if runner := a.Runners[op.Type]; runner != nil && op.Done() {
			a.settle(op, runner)
		}
	}
}

// settle drops what an operation needs no longer, if it is over.
func (a *Agent) settle(op state.Operation, runner Runner) {
	if recorded, _ := a.Store.Operation(op.Type, op.ID); !recorded.Done() {
		return
	}
	if err := runner.Settle(op); err != nil {
		a.Log.Error("Could not tidy up after an operation", "operation", op.Type, "id", op.ID, "error", err)
	}
}

// learnFrom looks at the host again after an operation.
func (a *Agent) learnFrom(ctx context.Context, op state.Operation) {
	a.mu.Lock()
	a.linked = ""
	if op.Type == protocol.OperationBootstrap {
		a.linked = op.ProviderID
	}
	a.mu.Unlock()
	a.observe(ctx)
	a.endpointChanged()
}

// idle keeps up what the plan desires of a node and of the agent itself, and
// waits for work.
func (a *Agent) idle(ctx context.Context) error {
	again, work, err := a.keepEndpoint(ctx)
	if err != nil || work {
		return err
	}
	defer a.alarm(ctx, again)()
	want := a.Store.Plan().Desired.ProviderID
	a.mu.Lock()
	linked := a.linked
	a.mu.Unlock()
	if want == "" || want == linked {
		return a.keepUpdated(ctx)
	}
	done := a.until(ctx, a.work, func(ctx context.Context) {
		if _, err := a.Linker.Link(ctx, want); err != nil && ctx.Err() == nil {
			a.Log.Warn("The Node does not have the providerID that the plan wants", "providerID", want, "error", err)
		}
	})
	if done {
		// Also after a failure: the next start or providerID tries again.
		a.mu.Lock()
		a.linked = want
		a.mu.Unlock()
	}
	return nil
}

// until runs f, but a signal ends its context.
func (a *Agent) until(ctx context.Context, wake <-chan struct{}, f func(context.Context)) (done bool) {
	return a.untilIf(ctx, wake, func() bool { return true }, f)
}

// untilIf runs f, but a signal that matters ends its context.
func (a *Agent) untilIf(ctx context.Context, wake <-chan struct{}, matters func() bool, f func(context.Context)) (done bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		f(ctx)
	}()
	for {
		select {
		case <-over:
			return ctx.Err() == nil
		case <-wake:
			if matters() {
				cancel()
				<-over
				return false
			}
		}
	}
}

// clip keeps a message within what the manager takes.
func clip(message string) string { return clipTo(message, protocol.MaxMessageBytes) }

func clipTo(message string, most int) string {
	if len(message) <= most {
		return message
	}
	const more = "…"
	return strings.ToValidUTF8(message[:most-len(more)], "") + more
}

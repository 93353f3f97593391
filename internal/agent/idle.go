package agent

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// idle applies what the plan desires apart from operations, then waits for work. The
// loop's goroutine calls it, so no operation begins meanwhile.
func (l *operationLoop) idle(ctx context.Context) error {
	again, hasWork, err := l.endpoint.applyIfDue(ctx)
	if err != nil || hasWork {
		return err
	}
	defer l.work.RaiseAfter(ctx, l.clock, again)()
	// A plan that comes from now on raises work. This one may be newer than the one that
	// had no operation: what it desires apart from its operation waits for that.
	plan := l.store.Plan()
	if _, found := l.next(plan); found {
		return nil
	}
	if change := l.node.Next(plan.Desired.ProviderID, plan.Desired.NodeLabels); change != nil {
		l.work.RunUntil(ctx, nil, change)
		return nil
	}
	return l.updateAgent(ctx, plan.Desired.Agent)
}

// forgetNode forgets what is known of the Node, which may be missing after an operation. Only
// a bootstrap has set the providerID.
func (l *operationLoop) forgetNode(op state.Operation) {
	if op.Type == protocol.OperationBootstrap {
		l.node.Forget(op.ProviderID)
		return
	}
	l.node.Forget("")
}

// updateAgent makes the pinned release the agent's program, and waits for work.
func (l *operationLoop) updateAgent(ctx context.Context, pinned *protocol.AgentRelease) error {
	if l.updater == nil {
		l.waitForWork(ctx, 0)
		return nil
	}
	var again time.Duration
	var err error
	done := l.work.RunUntil(ctx, nil, func(ctx context.Context) {
		again, err = l.updater.Ensure(ctx, pinned, l.reporter.wake.Raise)
	})
	if err != nil || !done {
		return err
	}
	l.waitForWork(ctx, again)
	return nil
}

// waitForWork waits for work, and at most limit unless limit is 0.
func (l *operationLoop) waitForWork(ctx context.Context, limit time.Duration) {
	if limit > 0 {
		l.work.WaitFor(ctx, l.clock, limit)
		return
	}
	l.work.Wait(ctx)
}

package agent

import (
	"context"
	"maps"
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
	if providerID := l.unsetProviderID(plan.Desired.ProviderID); providerID != "" {
		l.setProviderID(ctx, providerID)
		return nil
	}
	if labels := l.unsetLabels(plan.Desired.NodeLabels); len(labels) > 0 {
		l.setLabels(ctx, labels)
		return nil
	}
	return l.updateAgent(ctx, plan.Desired.Agent)
}

// unsetProviderID is the desired providerID; blank if the Node has it already.
func (l *operationLoop) unsetProviderID(desired string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if desired == l.currentProviderID {
		return ""
	}
	return desired
}

// setProviderID sets the Node's providerID unless work is raised meanwhile. A failure is
// only logged: the next start of the agent or another providerID tries again.
func (l *operationLoop) setProviderID(ctx context.Context, providerID string) {
	done := l.work.RunUntil(ctx, nil, func(ctx context.Context) {
		if _, err := l.node.SetProviderID(ctx, providerID); err != nil && ctx.Err() == nil {
			l.log.Warn("The Node does not have the providerID that the plan wants", "providerID", providerID, "error", err)
		}
	})
	if done {
		l.mu.Lock()
		l.currentProviderID = providerID
		l.mu.Unlock()
	}
}

// unsetLabels are the desired labels; empty if they are set already.
func (l *operationLoop) unsetLabels(desired map[string]string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if maps.Equal(desired, l.currentLabels) {
		return nil
	}
	return desired
}

// setLabels sets labels of the Node unless work is raised meanwhile. As with the providerID,
// a failure is only logged.
func (l *operationLoop) setLabels(ctx context.Context, labels map[string]string) {
	done := l.work.RunUntil(ctx, nil, func(ctx context.Context) {
		if _, err := l.node.SetLabels(ctx, labels); err != nil && ctx.Err() == nil {
			l.log.Warn("The Node does not have the labels that the plan wants", "labels", labels, "error", err)
		}
	})
	if done {
		l.mu.Lock()
		l.currentLabels = labels
		l.mu.Unlock()
	}
}

// recordProviderID records which providerID the Node has after an operation. A bootstrap
// has set it; after any other operation the Node may be missing, so it is unknown. Labels
// are unknown after every operation.
func (l *operationLoop) recordProviderID(op state.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentProviderID, l.currentLabels = "", nil
	if op.Type == protocol.OperationBootstrap {
		l.currentProviderID = op.ProviderID
	}
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

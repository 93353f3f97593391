package agent

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// endpointCheckInterval is how often the endpoint is applied without a change of the
// plan: people and other programs write the same files and objects.
const endpointCheckInterval = 5 * time.Minute

// minEndpointRetry is the shortest delay between two attempts, whatever the jitter.
const minEndpointRetry = 100 * time.Millisecond

// Applier applies to the host what a plan desires of the control plane endpoint.
type Applier interface {
	// Apply is called while no operation runs, and again after it failed or was
	// interrupted. It returns an EndpointReport without probes, also with an error.
	Apply(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) (protocol.EndpointReport, error)
}

// endpointUpkeep calls the Applier when the plan or the host has changed, after a
// failure, and at intervals.
type endpointUpkeep struct {
	applier  Applier
	store    *state.Store
	facts    *facts
	reporter *reporter
	clock    retry.Clock
	log      *slog.Logger
	// work interrupts an attempt if there is something else to do.
	work           signal.Signal
	isOperationDue func() bool
	// backoff belongs to the goroutine that calls applyIfDue.
	backoff *retry.Backoff

	mu sync.Mutex
	// hasChanged is true if the plan or the host may have changed since the last attempt.
	hasChanged bool
	// nextAt is when the next attempt is due without a change; zero means never.
	nextAt time.Time
	// loggedFailure is the last failure that was logged.
	loggedFailure string
}

// start makes the endpoint reportable for hosts that have none.
func (u *endpointUpkeep) start() {
	if u.applier != nil && u.store.Plan().Desired.Endpoint == nil {
		u.facts.update(func(o *observation) { o.endpoint.applied = &protocol.EndpointReport{} })
	}
}

// changed makes an attempt due.
func (u *endpointUpkeep) changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hasChanged = true
}

// takeDue reports whether an attempt is due, and if not, how long until then; 0 means
// after a change only.
func (u *endpointUpkeep) takeDue() (isDue bool, in time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.hasChanged && u.nextAt.IsZero() {
		return false, 0
	}
	if in = u.nextAt.Sub(u.clock.Now()); !u.hasChanged && in > 0 {
		return false, in
	}
	u.hasChanged = false
	return true, 0
}

// applyIfDue makes an attempt if one is due, and returns how long until the next one; 0
// means after a change only. hasWork is true if there may be something else to do first.
// The operation loop calls it, so that neither an operation nor an update of the agent
// runs at the same time.
func (u *endpointUpkeep) applyIfDue(ctx context.Context) (again time.Duration, hasWork bool, err error) {
	if u.applier == nil {
		return 0, false, nil
	}
	isDue, in := u.takeDue()
	if !isDue {
		return in, false, nil
	}
	endpoint, files := u.desired()
	var report protocol.EndpointReport
	// A new plan that desires the same does not interrupt a restart of the kubelet.
	isOutdated := func() bool {
		nextEndpoint, nextFiles := u.desired()
		return u.isOperationDue() || !reflect.DeepEqual(endpoint, nextEndpoint) || !reflect.DeepEqual(files, nextFiles)
	}
	done := u.work.RunUntil(ctx, isOutdated, func(ctx context.Context) { report, err = u.applier.Apply(ctx, endpoint, files) })
	if state.IsWriteError(err) {
		return 0, false, err
	}
	if !done {
		u.changed()
		return 0, true, nil
	}
	report.Message = truncate(report.Message, protocol.MaxMessageBytes)
	u.facts.update(func(o *observation) { o.endpoint.applied = &report })
	u.reporter.wake.Raise()
	again, hasWork = u.scheduleNext(err, endpoint != nil || len(files) > 0)
	return again, hasWork, nil
}

// scheduleNext returns how long until the next attempt, given the last one's error.
// checkAgain is true if the endpoint must be checked at intervals. hasChanged is true if
// an attempt is due at once.
func (u *endpointUpkeep) scheduleNext(err error, checkAgain bool) (again time.Duration, hasChanged bool) {
	failure := ""
	switch {
	case err != nil:
		failure, again = err.Error(), max(u.backoff.Next(), minEndpointRetry)
	case checkAgain:
		again = endpointCheckInterval
	}
	if err == nil {
		u.backoff.Reset()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if failure != "" && failure != u.loggedFailure {
		u.log.Warn("Could not apply the control plane endpoint that the plan wants; will retry", "error", err)
	}
	u.loggedFailure, u.nextAt = failure, time.Time{}
	if again > 0 {
		u.nextAt = u.clock.Now().Add(again)
	}
	return again, u.hasChanged
}

// desired returns what the plan desires of the endpoint if the host is a node. A clean
// host is not a node, so for it nothing is desired: files would make it not clean.
func (u *endpointUpkeep) desired() (*protocol.Endpoint, []protocol.File) {
	desired := u.store.Plan().Desired
	if !u.facts.current().cleanliness.Clean {
		return desired.Endpoint, desired.Files
	}
	if len(desired.Files) > 0 {
		desired.Files = nil
	}
	return nil, desired.Files
}

// startLocal restores the local endpoint, which the kubelet and a bootstrap that goes on need.
func (a *Agent) startLocal(ctx context.Context) {
	if a.o.Local == nil {
		return
	}
	if _, err := a.o.Local.Keep(ctx); err != nil {
		a.o.Log.Error("The control plane's endpoint is not served on this host; will retry", "error", err)
	}
}

// keepLocal keeps the local endpoint until ctx ends, also while an operation runs.
func (a *Agent) keepLocal(ctx context.Context) error {
	if a.o.Local != nil {
		a.o.Local.Run(ctx, func() {
			a.endpoint.changed()
			a.endpoint.work.Raise()
		})
	}
	return nil
}

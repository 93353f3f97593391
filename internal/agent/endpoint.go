package agent

import (
	"context"
	"reflect"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// endpointCheck is how often the host is looked at while a plan desires an
// endpoint or files: people and other programs write the same files and objects.
const endpointCheck = 5 * time.Minute

// Preparer makes the host ready for a bootstrap.
type Preparer interface {
	// Prepare writes the files and remembers the endpoint's VIP. It may be
	// repeated.
	Prepare(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) error
}

// Keeper makes the host what a plan desires of its cluster's endpoint.
type Keeper interface {
	// Apply is called while no operation runs, and again after it failed or was
	// ended. What it returns is all of an EndpointReport but the probes, also
	// beside an error.
	Apply(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) (protocol.EndpointReport, error)
}

// keeping is when the endpoint is to be looked after.
type keeping struct {
	// due is true when the plan or the host may have changed.
	due bool
	// at is the next time otherwise; zero for never.
	at time.Time
	// failure is the one that is in the log.
	failure string
}

// endpointChanged has the endpoint looked after, and other things probed if the
// plan says so.
func (a *Agent) endpointChanged() {
	a.mu.Lock()
	a.keeping.due = true
	a.mu.Unlock()
	a.retarget()
}

// endpointDue reports whether the endpoint is to be looked after now, or after
// how long; 0 for when something changes.
func (a *Agent) endpointDue() (now bool, in time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.keeping.due && a.keeping.at.IsZero() {
		return false, 0
	}
	if in = a.keeping.at.Sub(a.Clock.Now()); !a.keeping.due && in > 0 {
		return false, in
	}
	a.keeping.due = false
	return true, 0
}

// keepEndpoint makes the host what the plan desires of the endpoint, if that is
// due, and returns after how long it is due again, 0 for when something changes.
// work is true when there may be something else to do first. The operations'
// goroutine calls it, so that nothing else is done to the host meanwhile, and no
// update ends it half-way.
func (a *Agent) keepEndpoint(ctx context.Context) (again time.Duration, work bool, err error) {
	if a.Keeper == nil {
		return 0, false, nil
	}
	now, in := a.endpointDue()
	if !now {
		return in, false, nil
	}
	endpoint, files := a.desired()
	var report protocol.EndpointReport
	// A plan that says the same of the endpoint lets a restart of the kubelet end.
	other := func() bool {
		nextEndpoint, nextFiles := a.desired()
		_, operation := a.next()
		return operation || !reflect.DeepEqual(endpoint, nextEndpoint) || !reflect.DeepEqual(files, nextFiles)
	}
	done := a.untilIf(ctx, a.work, other, func(ctx context.Context) { report, err = a.Keeper.Apply(ctx, endpoint, files) })
	if isStateError(err) {
		return 0, false, err
	}
	if !done {
		a.mu.Lock()
		a.keeping.due = true
		a.mu.Unlock()
		return 0, true, nil
	}
	report.Message = clip(report.Message)
	a.facts.update(func(o *observation) { o.endpoint.kept = &report })
	signal(a.report)
	again, work = a.kept(err, endpoint != nil || len(files) > 0)
	return again, work, nil
}

// kept remembers how the last attempt went, and returns after how long the next
// is due, or that it is already.
func (a *Agent) kept(err error, watched bool) (again time.Duration, already bool) {
	failure := ""
	switch {
	case err != nil:
		failure, again = err.Error(), max(a.keepRetry.Next(), keepLeast)
	case watched:
		again = endpointCheck
	}
	if err == nil {
		a.keepRetry.Reset()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if failure != "" && failure != a.keeping.failure {
		a.Log.Warn("The host is not yet what the plan wants for the control plane endpoint", "error", err)
	}
	a.keeping.failure, a.keeping.at = failure, time.Time{}
	if again > 0 {
		a.keeping.at = a.Clock.Now().Add(again)
	}
	return again, a.keeping.due
}

// keepLeast keeps two attempts apart, whatever the jitter.
const keepLeast = 100 * time.Millisecond

// desired is what the plan says of the endpoint, if the host is a node. A clean
// host is none: what would be written for a claim that is about to be
// bootstrapped, or after a reset, would only make it unclean. What was written
// before is the reset's.
func (a *Agent) desired() (*protocol.Endpoint, []protocol.File) {
	desired := a.Store.Plan().Desired
	if !a.facts.current().cleanliness.Clean {
		return desired.Endpoint, desired.Files
	}
	if len(desired.Files) > 0 {
		desired.Files = nil
	}
	return nil, desired.Files
}

// alarm signals work after d, which may be 0 for never, unless it is stopped.
func (a *Agent) alarm(ctx context.Context, d time.Duration) (stop func()) {
	if d == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if a.Clock.Wait(ctx, d) == nil {
			signal(a.work)
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

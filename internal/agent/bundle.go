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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Stager keeps at most one bundle of Kubernetes unpacked on the disk. Operations share it
// with the run loop, which leaves it alone while an operation runs or is due.
type Stager interface {
	// Stage makes one attempt to have a bundle on the disk, instead of any other. After a
	// failed attempt for the same bundle it waits first.
	Stage(ctx context.Context, want protocol.Bundle, progress func(message string)) (folder string, m bundle.Manifest, err error)
	// Retry has the next attempt begin at once. Operations call it when somebody requests them.
	Retry(ctx context.Context) error
	// Clear removes what is staged.
	Clear(ctx context.Context) error
	// Watch has report called with each change. It must be called before the others.
	Watch(report func(protocol.BundleReport))
}

// bundleUpkeep keeps the bundle staged that the plan desires.
type bundleUpkeep struct {
	stager         Stager // nil: the host stages no bundles
	store          *state.Store
	facts          *facts
	reporter       *reporter
	isOperationDue func() bool
	clock          retry.Clock
	log            *slog.Logger
	// wake is raised when the plan may have changed or an operation has ended.
	wake signal.Signal

	mu sync.Mutex
	// reportedAt is when the report changed last.
	reportedAt time.Time
}

// start is called before anything is staged.
func (u *bundleUpkeep) start() {
	if u.stager != nil {
		u.stager.Watch(u.record)
	}
}

// run stages bundles until ctx ends.
func (u *bundleUpkeep) run(ctx context.Context) error {
	if u.stager == nil {
		return nil
	}
	for ctx.Err() == nil {
		if u.isOperationDue() {
			u.wake.Wait(ctx)
			continue
		}
		desired := u.store.Plan().Desired.Bundle
		isOver := func() bool { return u.isOperationDue() || !isSameBundle(desired, u.store.Plan().Desired.Bundle) }
		var err error
		done := u.wake.RunUntil(ctx, isOver, func(ctx context.Context) { err = u.ensure(ctx, desired) })
		switch {
		case !done:
		case err == nil:
			u.wake.Wait(ctx)
		case desired == nil:
			u.log.Warn("Could not remove a staged bundle", "error", err)
			u.wake.Wait(ctx)
		}
		// Stage waits before it makes the next attempt, and logs failures.
	}
	return nil
}

// ensure makes one attempt to have the desired bundle staged, or none if none is desired.
func (u *bundleUpkeep) ensure(ctx context.Context, desired *protocol.Bundle) error {
	if desired == nil {
		if err := u.stager.Clear(ctx); err != nil {
			return err
		}
		u.record(protocol.BundleReport{})
		return nil
	}
	_, _, err := u.stager.Stage(ctx, *desired, func(string) {})
	return err
}

// record records what to report. Progress is reported at most each progressInterval, as
// each report costs the manager a write.
func (u *bundleUpkeep) record(next protocol.BundleReport) {
	next.Message = truncate(next.Message, protocol.MaxMessageBytes)
	changed := false
	u.mu.Lock()
	now := u.clock.Now()
	isEarly := now.Sub(u.reportedAt) < progressInterval
	u.facts.update(func(o *observation) {
		if o.bundle != nil && (*o.bundle == next || isEarly && isProgress(*o.bundle, next)) {
			return
		}
		o.bundle, changed = &next, true
		u.reportedAt = now
	})
	u.mu.Unlock()
	if changed {
		u.reporter.wake.Raise()
	}
}

// isProgress reports whether only the progress differs.
func isProgress(former, next protocol.BundleReport) bool {
	return next.State == protocol.BundleStaging && former.State == next.State && former.SHA256 == next.SHA256
}

// isSameBundle reports whether two plans desire the same bundle from the same sources.
func isSameBundle(a, b *protocol.Bundle) bool { return reflect.DeepEqual(a, b) }

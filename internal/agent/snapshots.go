package agent

import (
	"context"
	"log/slog"
	"reflect"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Snapshotter keeps snapshots of etcd on the disk.
type Snapshotter interface {
	// Take makes one attempt to have the snapshot on the disk. It does nothing if it is there.
	Take(ctx context.Context, want protocol.EtcdSnapshot) error
	// List returns the snapshots of the etcd that the host runs, the newest one first.
	List(ctx context.Context) ([]protocol.EtcdSnapshotFacts, error)
}

// snapshotUpkeep takes the snapshots that plans desire. One that has begun goes on when the
// plan no longer desires it, as during a pause; an operation ends it.
type snapshotUpkeep struct {
	snapshotter    Snapshotter // nil: the host takes no snapshots
	store          *state.Store
	facts          *facts
	reporter       *reporter
	isOperationDue func() bool
	backoff        *retry.Backoff
	clock          retry.Clock
	log            *slog.Logger
	// wake is raised when the plan may have changed or an operation has ended.
	wake signal.Signal
}

// run takes snapshots until ctx ends.
func (u *snapshotUpkeep) run(ctx context.Context) error {
	if u.snapshotter == nil {
		return nil
	}
	for ctx.Err() == nil {
		if u.isOperationDue() {
			u.wake.Wait(ctx)
			continue
		}
		var err error
		desired := u.store.Plan().Desired.EtcdSnapshot
		done := u.wake.RunUntil(ctx, u.isOperationDue, func(ctx context.Context) {
			if desired != nil {
				err = u.snapshotter.Take(ctx, *desired)
			}
			if ctx.Err() == nil {
				u.record(ctx, desired, err)
			}
		})
		switch {
		case !done:
		case err != nil:
			u.log.Warn("Could not take a snapshot of etcd", "snapshot", desired.ID, "error", err)
			u.wake.WaitFor(ctx, u.clock, u.backoff.Next())
		default:
			u.backoff.Reset()
			// A plan that came meanwhile may desire another one.
			if isSameSnapshot(desired, u.store.Plan().Desired.EtcdSnapshot) {
				u.wake.Wait(ctx)
			}
		}
	}
	return nil
}

// record records what to report after an attempt; desired is nil if there was none.
func (u *snapshotUpkeep) record(ctx context.Context, desired *protocol.EtcdSnapshot, failure error) {
	list, err := u.snapshotter.List(ctx)
	if err != nil {
		u.log.Warn("Could not list the snapshots of etcd", "error", err)
		if failure == nil {
			return
		}
	}
	next, changed := &protocol.EtcdSnapshotReport{Snapshots: list}, false
	if failure != nil {
		next.Failure = &protocol.EtcdSnapshotFailure{
			ID: desired.ID, Cluster: desired.Cluster, Message: truncate(failure.Error(), protocol.MaxMessageBytes),
		}
	}
	u.facts.update(func(o *observation) {
		if desired == nil && o.etcdSnapshots != nil {
			next.Failure = o.etcdSnapshots.Failure
		}
		if err != nil && o.etcdSnapshots != nil {
			next.Snapshots = o.etcdSnapshots.Snapshots
		}
		if changed = !reflect.DeepEqual(o.etcdSnapshots, next); changed {
			o.etcdSnapshots = next
		}
	})
	if changed {
		u.reporter.wake.Raise()
	}
}

// isSameSnapshot reports whether two plans desire the same snapshot.
func isSameSnapshot(a, b *protocol.EtcdSnapshot) bool { return reflect.DeepEqual(a, b) }

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

// Uploader uploads snapshots of etcd.
type Uploader interface {
	// Upload makes one attempt to upload a snapshot that the host has.
	Upload(ctx context.Context, want protocol.EtcdSnapshotUpload) (protocol.EtcdSnapshotObject, error)
}

// uploads uploads the snapshots that plans desire, beside everything else: no operation waits
// for a slow line. An upload that has begun is completed. What was uploaded is not stored, so
// that the next process uploads a snapshot again if the manager still wants it.
type uploads struct {
	uploader Uploader // nil: the host uploads nothing
	store    *state.Store
	facts    *facts
	reporter *reporter
	backoff  *retry.Backoff
	clock    retry.Clock
	log      *slog.Logger
	// wake is raised when the plan may have changed.
	wake signal.Signal
}

// run uploads snapshots until ctx ends.
func (u *uploads) run(ctx context.Context) error {
	if u.uploader == nil {
		return nil
	}
	// uploaded is the upload that was completed, until the plan no longer desires it. If it
	// does so again, the object is no longer there.
	var uploaded *protocol.EtcdSnapshotUpload
	for ctx.Err() == nil {
		desired := u.store.Plan().Desired.EtcdSnapshotUpload
		if desired == nil {
			uploaded = nil
		}
		if desired == nil || reflect.DeepEqual(desired, uploaded) {
			u.wake.Wait(ctx)
			continue
		}
		object, err := u.uploader.Upload(ctx, *desired)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			u.log.Warn("Could not upload a snapshot of etcd", "snapshot", desired.ID, "error", err)
			u.record(protocol.EtcdSnapshotUploadReport{Failure: &protocol.EtcdSnapshotUploadFailure{
				ID: desired.ID, Message: truncate(err.Error(), protocol.MaxMessageBytes),
			}})
			u.wake.WaitFor(ctx, u.clock, u.backoff.Next())
		default:
			u.backoff.Reset()
			uploaded = desired
			u.record(protocol.EtcdSnapshotUploadReport{Last: &object})
		}
	}
	return nil
}

// record records what to report after an attempt. After a failure the last upload stays.
func (u *uploads) record(report protocol.EtcdSnapshotUploadReport) {
	u.facts.update(func(o *observation) {
		if report.Last == nil && o.etcdSnapshotUpload != nil {
			report.Last = o.etcdSnapshotUpload.Last
		}
		o.etcdSnapshotUpload = &report
	})
	u.reporter.wake.Raise()
}

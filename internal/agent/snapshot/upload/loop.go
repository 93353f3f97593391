package upload

import (
	"context"
	"log/slog"
	"reflect"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Loop uploads the snapshots that plans desire, beside everything else: no operation waits
// for a slow line. An upload that has begun is completed. What was uploaded is not stored, so
// that the next process uploads a snapshot again if the manager still wants it.
type Loop struct {
	// Upload makes one attempt, such as Uploader.Upload; nil: the host uploads nothing.
	Upload func(ctx context.Context, want protocol.EtcdSnapshotUpload) (protocol.EtcdSnapshotObject, error)
	// Desired returns what the plan desires, or nil.
	Desired func() *protocol.EtcdSnapshotUpload
	// Report is called after each attempt.
	Report  func(protocol.EtcdSnapshotUploadReport)
	Backoff *retry.Backoff
	Clock   retry.Clock
	Log     *slog.Logger
	// Wake is raised when the plan may have changed.
	Wake signal.Signal
}

// Run uploads snapshots until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	if l.Upload == nil {
		return nil
	}
	// uploaded is the upload that was completed, until the plan no longer desires it. If it
	// does so again, the object is no longer there.
	var uploaded *protocol.EtcdSnapshotUpload
	// A failure does not end what is known of the last upload.
	var report protocol.EtcdSnapshotUploadReport
	for ctx.Err() == nil {
		desired := l.Desired()
		if desired == nil {
			uploaded = nil
		}
		if desired == nil || reflect.DeepEqual(desired, uploaded) {
			l.Wake.Wait(ctx)
			continue
		}
		object, err := l.Upload(ctx, *desired)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			l.Log.Warn("Could not upload a snapshot of etcd", "snapshot", desired.ID, "error", err)
			report.Failure = &protocol.EtcdSnapshotUploadFailure{ID: desired.ID, Message: truncate(err.Error())}
			l.Report(report)
			l.Wake.WaitFor(ctx, l.Clock, l.Backoff.Next())
		default:
			l.Backoff.Reset()
			uploaded, report = desired, protocol.EtcdSnapshotUploadReport{Last: &object}
			l.Report(report)
		}
	}
	return nil
}

// truncate cuts a message to what a report may have.
func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), protocol.MaxMessageBytes)], "")
}

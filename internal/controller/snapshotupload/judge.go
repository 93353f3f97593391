package snapshotupload

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// grace is how long an upload may take before it counts as overdue. Until then the snapshot
// before it will do.
const grace = time.Hour

// judge returns the condition EtcdSnapshotsUploaded, and when to look again. host is the one
// that has the last snapshot, or nil; unusable is why the destination can't be used, or nil.
// It is pure.
func judge(infra *infrav1.ElementalCluster, host *infrav1.ElementalHost, unusable error, now time.Time) (metav1.Condition, time.Duration) {
	is := func(status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Type: infrav1.EtcdSnapshotsUploadedCondition, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	if unusable != nil {
		return is(metav1.ConditionFalse, infrav1.DestinationUnusableReason, "The destination can't be used: %v", unusable), afterError
	}
	record := infra.Spec.EtcdSnapshotRecord
	if record == nil || record.Last == nil {
		return is(metav1.ConditionFalse, infrav1.EtcdUploadPendingReason, "No snapshot was taken yet"), again
	}
	last := record.Last
	id := infrav1.EtcdSnapshotID(last.ScheduledAt)
	if item := infra.UploadedEtcdSnapshot(id, last.HostName); item != nil {
		return is(metav1.ConditionTrue, infrav1.EtcdSnapshotUploadedReason, "Snapshot %s is at the destination as %s", id, item.Object), again
	}
	until := last.TakenAt.Add(grace)
	inTime := now.Before(until)
	why := failure(host, id)
	switch {
	case inTime && hasFormer(infra, last):
		former := infra.Status.EtcdSnapshots.Items[0]
		return is(metav1.ConditionTrue, infrav1.EtcdSnapshotUploadedReason, "Snapshot %s is at the destination as %s", former.ID, former.Object), until.Sub(now)
	case why != "":
		return is(metav1.ConditionFalse, infrav1.EtcdUploadFailedReason, "Host %s can't upload snapshot %s: %s", last.HostName, id, why), again
	case inTime:
		return is(metav1.ConditionFalse, infrav1.EtcdUploadPendingReason, "Host %s uploads snapshot %s", last.HostName, id), until.Sub(now)
	default:
		return is(metav1.ConditionFalse, infrav1.EtcdUploadOverdueReason, "Snapshot %s is overdue at the destination: host %s %s", id, last.HostName, obstacle(host, infra.Spec.EtcdSnapshots.Destination)), again
	}
}

// hasFormer reports whether the newest snapshot at the destination is the one before the last,
// or a newer one.
func hasFormer(infra *infrav1.ElementalCluster, last *infrav1.EtcdSnapshotTaken) bool {
	oldest := infrav1.EtcdSnapshotID(metav1.NewTime(last.ScheduledAt.Add(-infra.Spec.EtcdSnapshots.Interval())))
	list := infra.Status.EtcdSnapshots
	return list != nil && len(list.Items) > 0 && list.Items[0].ID >= oldest // IDs are times
}

// failure is why the host could not upload the snapshot, as it says; blank if it says nothing.
func failure(host *infrav1.ElementalHost, id string) string {
	if host == nil || host.Status.EtcdSnapshotUpload == nil {
		return ""
	}
	if f := host.Status.EtcdSnapshotUpload.Failure; f != nil && f.ID == id {
		return f.Message
	}
	return ""
}

// obstacle says why a host that reports nothing may not have uploaded a snapshot.
func obstacle(host *infrav1.ElementalHost, destination *infrav1.EtcdSnapshotDestination) string {
	switch {
	case host == nil:
		return "does not exist"
	case !host.IsConnected():
		return "is not connected"
	case !host.Supports(uploads):
		return "has an agent that can't upload snapshots"
	case destination.Folder != nil && !host.Supports(copies):
		return "has an agent that can't copy snapshots to a folder: update it"
	default:
		return "has not uploaded it yet"
	}
}

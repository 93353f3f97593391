package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// maxNamed bounds how many hosts a message names.
const maxNamed = 5

// setCondition sets the condition that follows from the record. at is the time of the
// snapshot that is due.
func (d *Decision) setCondition(c Cluster, at time.Time) {
	record := d.Record
	if record == nil {
		record = &infrav1.EtcdSnapshotRecord{}
	}
	// Before the grace is over, the snapshot before the one that is due will do.
	hasFormer := isThere(c, record.Last) && !record.Last.ScheduledAt.Time.Before(at.Add(-c.Infra.Spec.EtcdSnapshots.Interval()))
	isCurrent := hasFormer && !record.Last.ScheduledAt.Time.Before(at)
	isOverdue := !isCurrent && !c.Now.Before(at.Add(grace))
	if hasFormer && !isCurrent && !isOverdue {
		d.recheckBy(at.Add(grace))
	}
	condition := &metav1.Condition{Type: infrav1.EtcdSnapshotsReadyCondition, Status: metav1.ConditionFalse}
	d.Condition = condition
	id := infrav1.EtcdSnapshotID(metav1.NewTime(at))
	why := ""
	if record.Request != nil {
		why = failure(c, record.Request)
	}
	switch {
	case isCurrent, hasFormer && !isOverdue:
		condition.Status, condition.Reason = metav1.ConditionTrue, infrav1.EtcdSnapshotTakenReason
		condition.Message = fmt.Sprintf("Snapshot %s is on host %s", infrav1.EtcdSnapshotID(record.Last.ScheduledAt), record.Last.HostName)
	case why != "":
		condition.Reason = infrav1.EtcdSnapshotFailedReason
		condition.Message = fmt.Sprintf("Host %s can't take snapshot %s: %s", record.Request.HostName, infrav1.EtcdSnapshotID(record.Request.ScheduledAt), why)
	case !hasControlPlane(c):
		condition.Reason = infrav1.WaitingForControlPlaneReason
		condition.Message = "The cluster has no control-plane host that is bootstrapped"
	case len(candidates(c)) == 0:
		condition.Reason = infrav1.NoHostReason
		condition.Message = fmt.Sprintf("No control-plane host can take snapshot %s: %s", id, obstacles(c))
	case record.Last == nil && c.Now.Before(record.Request.AskedAt.Add(delivery)):
		condition.Reason = infrav1.EtcdSnapshotPendingReason
		condition.Message = fmt.Sprintf("Host %s takes snapshot %s", record.Request.HostName, infrav1.EtcdSnapshotID(record.Request.ScheduledAt))
	default:
		condition.Reason = infrav1.EtcdSnapshotOverdueReason
		condition.Message = fmt.Sprintf("Snapshot %s is overdue: host %s has not delivered it yet", id, record.Request.HostName)
	}
}

func hasControlPlane(c Cluster) bool {
	for _, host := range c.Hosts {
		if isControlPlane(host) && host.IsBootstrapped() {
			return true
		}
	}
	return false
}

// obstacles says why no control-plane host is asked.
func obstacles(c Cluster) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Hosts)) {
		if host := c.Hosts[name]; isControlPlane(host) {
			parts = append(parts, fmt.Sprintf("%s (%s)", name, obstacle(host)))
		}
	}
	if more := len(parts) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(parts[:maxNamed], ", "), more)
	}
	return strings.Join(parts, ", ")
}

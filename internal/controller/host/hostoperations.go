package host

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// quarantineFrom is the number of consecutive failed bootstraps after which a host is
// quarantined. A single failure may be the fault of the bootstrap data.
const quarantineFrom = 2

// quarantineTime returns how long a host is quarantined after consecutive failures.
func quarantineTime(failures int32) time.Duration {
	switch failures {
	case quarantineFrom:
		return 10 * time.Minute
	case 3:
		return time.Hour
	case 4:
		return 6 * time.Hour
	default:
		return 24 * time.Hour
	}
}

// updateExpiring ends what has expired of maintenance, quarantine and requests for logs, and begins
// a quarantine, in one write.
func (r *Reconciler) updateExpiring(ctx context.Context, host *infrav1.ElementalHost) error {
	before := host.DeepCopy()
	now := r.Clock.Now()
	var events []hoststatus.Event
	for _, step := range []func(*infrav1.ElementalHost, time.Time) (hoststatus.Event, bool){endMaintenance, endQuarantine, beginQuarantine, endLogRequest} {
		if e, ok := step(host, now); ok {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Ending or beginning maintenance, quarantine or a request for a log",
		"maintenance", host.InMaintenance(), "quarantine", host.Spec.Quarantine != nil, "logRequest", host.Spec.LogRequest != nil)
	if err := r.Client.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("ending or beginning maintenance, quarantine or a request for a log: %w", err)
	}
	for _, e := range events {
		r.Recorder.Eventf(host, nil, e.Type, e.Reason, "KeepTime", "%s", e.Message)
	}
	return nil
}

// endMaintenance records that maintenance has expired. It leaves spec.maintenance to its writer:
// if that is a program that applies what is in git, it would put a removed field back. It returns
// an Event because conditions do not change if the given time was in the past from the start.
func endMaintenance(host *infrav1.ElementalHost, now time.Time) (hoststatus.Event, bool) {
	m := host.Spec.Maintenance
	if !host.InMaintenance() || m.Until.IsZero() || now.Before(m.Until.Time) {
		return hoststatus.Event{}, false
	}
	host.Spec.MaintenanceEndedAt = m.Until
	return hoststatus.Event{
		Type: corev1.EventTypeNormal, Reason: infrav1.MaintenanceEndedReason,
		Message: "The maintenance is over; it was until " + m.Until.UTC().Format(time.RFC3339),
	}, true
}

func endQuarantine(host *infrav1.ElementalHost, now time.Time) (hoststatus.Event, bool) {
	q := host.Spec.Quarantine
	if q == nil || now.Before(q.Until.Time) {
		return hoststatus.Event{}, false
	}
	host.Spec.Quarantine = nil
	return hoststatus.Event{Type: corev1.EventTypeNormal, Reason: infrav1.QuarantineEndedReason, Message: "The quarantine is over"}, true
}

// beginQuarantine quarantines a host whose last bootstraps failed. An annotation records
// the claim of the last failure, so that each failure begins at most one quarantine, even
// if a user ends it early. If status is lost, the failures count from zero.
func beginQuarantine(host *infrav1.ElementalHost, now time.Time) (hoststatus.Event, bool) {
	failures := host.Status.Failures
	if failures == nil || failures.Consecutive < quarantineFrom || host.Annotations[infrav1.QuarantinedForAnnotation] == failures.LastOperationID {
		return hoststatus.Event{}, false
	}
	until := failures.LastTime.Add(quarantineTime(failures.Consecutive))
	if !now.Before(until) {
		return hoststatus.Event{}, false
	}
	if q := host.Spec.Quarantine; q != nil && q.Until.After(until) {
		until = q.Until.Time
	}
	host.Spec.Quarantine = &infrav1.HostQuarantine{
		Reason:   fmt.Sprintf("%d bootstraps in a row failed", failures.Consecutive),
		Until:    metav1.NewTime(until),
		Failures: failures.Consecutive,
	}
	host.Annotations = maps.Clone(host.Annotations)
	if host.Annotations == nil {
		host.Annotations = map[string]string{}
	}
	host.Annotations[infrav1.QuarantinedForAnnotation] = failures.LastOperationID
	return hoststatus.Event{
		Type: corev1.EventTypeWarning, Reason: infrav1.QuarantinedReason,
		Message: fmt.Sprintf("%s; no machine gets the host before %s", host.Spec.Quarantine.Reason, until.UTC().Format(time.RFC3339)),
	}, true
}

// untilNextExpiry returns the time until maintenance, the quarantine, the log or the request for
// one expires, or certificates are about to; 0 if none does.
func untilNextExpiry(host *infrav1.ElementalHost, now time.Time) time.Duration {
	var next time.Duration
	consider := func(end metav1.Time) {
		if left := end.Sub(now); !end.IsZero() && left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	if m := host.Spec.Maintenance; m != nil {
		consider(m.Until)
	}
	if q := host.Spec.Quarantine; q != nil {
		consider(q.Until)
	}
	consider(metav1.NewTime(hoststatus.CertificatesChange(host, now)))
	if request := host.Spec.LogRequest; request != nil {
		consider(request.Until)
	}
	if log := host.Status.Log; log != nil {
		consider(log.ExpiresAt)
	}
	return next
}

// releaseFenced releases a fenced host whose Machine does not exist. For a Machine that
// exists, package machine releases the host and deletes the Machine.
func (r *Reconciler) releaseFenced(ctx context.Context, host *infrav1.ElementalHost) error {
	is := host.Spec.Claim
	if host.Spec.Fence == nil || is == nil || is.Phase != infrav1.ClaimBound {
		return nil
	}
	exists, err := r.machineExists(ctx, host)
	if err != nil || exists {
		return err
	}
	erase, err := r.eraseFor(ctx, host)
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Releasing fenced host whose Machine does not exist", "machineName", is.MachineName, "clusterName", is.ClusterName)
	return claim.Release(ctx, r.Client, host, is.ID, erase)
}

// eraseFor returns the erase method of the ElementalMachine that has claimed the host, or
// that of the claim. The ElementalMachine may exist although its Machine does not.
func (r *Reconciler) eraseFor(ctx context.Context, host *infrav1.ElementalHost) (infrav1.EraseMethod, error) {
	machines := &infrav1.ElementalMachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(host.Namespace), client.MatchingFields{index.MachineByClaim: host.Spec.Claim.ID})
	if err != nil {
		return "", fmt.Errorf("listing the ElementalMachine of host %s: %w", host.Name, err)
	}
	for i := range machines.Items {
		if erase := machines.Items[i].Spec.Release.EraseDataDisks; erase != "" {
			return erase, nil
		}
	}
	return host.Spec.Claim.Erase, nil
}

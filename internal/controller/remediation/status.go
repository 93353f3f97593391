package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// patchStatus sets the conditions and writes status in one request, if it changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalRemediationStatus) error {
	reconcile.SetConditions(&s.remediation.Status.Conditions, s.remediation.Generation, s.now, conditionsOf(s)...)
	written, err := reconcile.PatchStatus(ctx, r.Client, s.remediation, statusOf, before)
	if written {
		r.recordEvents(s, before.Conditions)
	}
	return err
}

// recordEvents records an Event, and counts an outcome, for each condition whose reason
// changed.
func (r *Reconciler) recordEvents(s *scope, before []metav1.Condition) {
	for _, conditionType := range []string{infrav1.RebootedCondition, infrav1.ReadyCondition} {
		is := meta.FindStatusCondition(s.remediation.Status.Conditions, conditionType)
		was := meta.FindStatusCondition(before, conditionType)
		if is == nil || (was != nil && was.Reason == is.Reason) || (conditionType == infrav1.ReadyCondition && isRebootReason(is.Reason)) {
			continue
		}
		if was == nil && is.Reason == infrav1.RemediatedReason {
			// The MachineHealthCheck creates the remediation before it writes the Machine's
			// condition.
			continue
		}
		eventType := corev1.EventTypeNormal
		switch is.Reason {
		case infrav1.RebootFailedReason, infrav1.RebootImpossibleReason, infrav1.SiteDarkReason,
			infrav1.ReplacingReason, infrav1.NoReplacementReason, infrav1.HostMissingReason:
			eventType = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(s.remediation, nil, eventType, is.Reason, "Remedy", "%s", is.Message)
		r.Metrics.count(is.Reason)
	}
}

// isRebootReason reports whether the condition Rebooted has the same reason, so that
// one Event is enough.
func isRebootReason(reason string) bool {
	return reason == infrav1.RebootRequestedReason || reason == infrav1.RebootedReason
}

// conditionsOf returns the conditions of the remediation. It is pure.
func conditionsOf(s *scope) []metav1.Condition {
	if paused(s) {
		return []metav1.Condition{reconcile.Paused(reconcile.PausedMessage(s.cluster))}
	}
	ready := metav1.Condition{
		Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: s.decision.reason, Message: s.decision.message,
	}
	if ready.Reason == infrav1.RemediatedReason {
		ready.Status = metav1.ConditionTrue
	}
	out := []metav1.Condition{
		reconcile.NotPaused(),
		ready,
	}
	if rebooted, known := rebooted(s); known {
		out = append(out, rebooted)
	}
	return out
}

// rebooted returns the condition Rebooted for the last requested reboot. known is false
// if the condition must not change: no reboot was requested, the machine has no host, or
// the Machine is being replaced.
func rebooted(s *scope) (_ metav1.Condition, known bool) {
	is := func(status metav1.ConditionStatus, reason, message string) (metav1.Condition, bool) {
		return metav1.Condition{Type: infrav1.RebootedCondition, Status: status, Reason: reason, Message: message}, true
	}
	if v := s.decision.rebootFailure; v.reason != "" {
		return is(metav1.ConditionFalse, v.reason, v.message)
	}
	attempt := s.remediation.Status.Reboots
	if attempt == 0 || s.host == nil || s.decision.reason == infrav1.ReplacingReason {
		return metav1.Condition{}, false
	}
	switch op := s.host.Operation(infrav1.OperationReboot, requestID(s, attempt)); {
	case withdrawn(s, attempt):
		return is(metav1.ConditionFalse, infrav1.RebootRequestedReason, fmt.Sprintf("The request to reboot host %s was withdrawn for now", s.host.Name))
	case op == nil && pendingReboot(s.host) != requestID(s, attempt):
		return metav1.Condition{}, false
	case op == nil || op.State == infrav1.OperationRunning:
		return is(metav1.ConditionFalse, infrav1.RebootRequestedReason, fmt.Sprintf("Host %s was asked to reboot (%d)", s.host.Name, attempt))
	case op.State == infrav1.OperationSucceeded:
		return is(metav1.ConditionTrue, infrav1.RebootedReason, fmt.Sprintf("Host %s was rebooted (%d)", s.host.Name, attempt))
	default:
		v := rebootFailure(s.host, op)
		return is(metav1.ConditionFalse, v.reason, v.message)
	}
}

package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// patchStatus writes conditions and what the steps put into status, in one
// request and only if something changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalRemediationStatus) error {
	status := &s.remediation.Status
	for _, c := range conditionsOf(s) {
		c.LastTransitionTime = metav1.NewTime(s.now)
		c.ObservedGeneration = s.remediation.Generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	base, after := s.remediation.DeepCopy(), s.remediation.DeepCopy()
	base.Status = *before
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("writing status: %w", err)
	}
	r.tell(s, before.Conditions)
	return nil
}

// tell records Events and counts, for what has just become so.
func (r *Reconciler) tell(s *scope, before []metav1.Condition) {
	for _, conditionType := range []string{infrav1.RebootedCondition, infrav1.ReadyCondition} {
		is := meta.FindStatusCondition(s.remediation.Status.Conditions, conditionType)
		was := meta.FindStatusCondition(before, conditionType)
		if is == nil || (was != nil && was.Reason == is.Reason) || (conditionType == infrav1.ReadyCondition && ofReboot(is.Reason)) {
			continue
		}
		if was == nil && is.Reason == infrav1.RemediatedReason {
			// The health check makes this object before it records its verdict.
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

// ofReboot reports whether the condition Rebooted tells of it too.
func ofReboot(reason string) bool {
	return reason == infrav1.RebootRequestedReason || reason == infrav1.RebootedReason
}

// conditionsOf says what is the case, from what was read and decided. It is pure.
func conditionsOf(s *scope) []metav1.Condition {
	if paused(s) {
		return []metav1.Condition{{
			Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason, Message: pausedMessage(s),
		}}
	}
	ready := metav1.Condition{
		Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: s.decision.reason, Message: s.decision.message,
	}
	if ready.Reason == infrav1.RemediatedReason {
		ready.Status = metav1.ConditionTrue
	}
	out := []metav1.Condition{
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason},
		ready,
	}
	if rebooted, known := rebooted(s); known {
		out = append(out, rebooted)
	}
	return out
}

func pausedMessage(s *scope) string {
	if s.cluster == nil {
		return "The Cluster does not exist, which counts as paused"
	}
	return "The Cluster or this object is paused"
}

// rebooted tells of the reboot that was asked for last. known is false where the
// condition is to stay as it is, or absent: nothing was asked for, the host is not
// there to tell, or it does not matter any more.
func rebooted(s *scope) (_ metav1.Condition, known bool) {
	is := func(status metav1.ConditionStatus, reason, message string) (metav1.Condition, bool) {
		return metav1.Condition{Type: infrav1.RebootedCondition, Status: status, Reason: reason, Message: message}, true
	}
	if v := s.decision.reboot; v.reason != "" {
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
		v := failure(s.host, op)
		return is(metav1.ConditionFalse, v.reason, v.message)
	}
}

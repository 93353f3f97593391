package cluster

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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// patchStatus writes conditions and what the steps put into status, in one
// request and only if something changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalClusterStatus) error {
	now := metav1.NewTime(r.Clock.Now())
	for _, c := range conditions(s) {
		c.LastTransitionTime = now
		c.ObservedGeneration = s.infraCluster.Generation
		meta.SetStatusCondition(&s.infraCluster.Status.Conditions, c)
	}
	if s.followed == nil && s.endpoint.reason != "" {
		meta.RemoveStatusCondition(&s.infraCluster.Status.Conditions, infrav1.ControlPlaneEndpointFollowedCondition)
	}
	if equality.Semantic.DeepEqual(before, &s.infraCluster.Status) {
		return nil
	}
	base := s.infraCluster.DeepCopy()
	base.Status = *before
	after := s.infraCluster.DeepCopy()
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	r.tell(s, before.Endpoint, s.infraCluster.Status.Endpoint)
	return nil
}

// tell counts moves and says when one is complete, once that is on record.
func (r *Reconciler) tell(s *scope, before, after *infrav1.EndpointStatus) {
	// Where status was lost, a move that is found again is none.
	if before == nil || after == nil || after.LastMove == nil {
		return
	}
	is, was := after.LastMove, before.LastMove
	begun := was != nil && was.StartedAt.Equal(&is.StartedAt)
	if !begun {
		r.Metrics.moved(is.Cause)
	}
	if is.CompletedAt.IsZero() || (begun && !was.CompletedAt.IsZero()) {
		return
	}
	r.Metrics.completed(is.CompletedAt.Sub(is.StartedAt.Time))
	for _, o := range []client.Object{s.infraCluster, s.cluster} {
		r.Recorder.Eventf(o, nil, corev1.EventTypeNormal, infrav1.EndpointMovedReason, "Move",
			"The control plane endpoint has moved from %s to %s; nothing that can be reached uses the former one", is.From, is.To)
	}
}

// conditions says what is the case. It is pure.
func conditions(s *scope) []metav1.Condition {
	if paused(s) {
		return []metav1.Condition{{
			Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason,
			Message: "The Cluster or this object is paused, or the Cluster is not there yet",
		}}
	}
	endpoint := metav1.Condition{
		Type: infrav1.ControlPlaneEndpointReadyCondition, Status: metav1.ConditionFalse, Reason: s.endpoint.reason, Message: s.endpoint.message,
	}
	if s.endpoint.ready {
		endpoint.Status = metav1.ConditionTrue
	}
	ready := endpoint
	ready.Type = infrav1.ReadyCondition
	if s.endpoint.ready {
		ready.Reason, ready.Message = infrav1.ProvisionedReason, ""
	}
	out := []metav1.Condition{
		ready,
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason},
	}
	if !s.infraCluster.DeletionTimestamp.IsZero() {
		out[0].Status, out[0].Reason, out[0].Message = metav1.ConditionFalse, infrav1.DeletingReason, "Giving reservations back"
		return out
	}
	if s.endpoint.reason == "" {
		return out[1:]
	}
	out = append(out, endpoint)
	if s.followed != nil {
		out = append(out, followedCondition(*s.followed))
	}
	return out
}

func followedCondition(f followedState) metav1.Condition {
	c := metav1.Condition{
		Type: infrav1.ControlPlaneEndpointFollowedCondition, Status: metav1.ConditionTrue, Reason: infrav1.EndpointFollowedReason,
	}
	if len(f.remaining) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, infrav1.EndpointMovingReason
		c.Message = "May still use a former endpoint: " + failover.AtMost(f.remaining, ", ")
	}
	return c
}

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// patchStatus writes conditions and the status that the phases set, in one request and
// only if something changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *run, before *infrav1.ElementalClusterStatus) error {
	list := &s.InfraCluster.Status.Conditions
	reconcile.SetConditions(list, s.InfraCluster.Generation, r.Clock.Now(), conditions(s)...)
	if s.progress == nil && s.endpoint.Reason != "" {
		meta.RemoveStatusCondition(list, infrav1.ControlPlaneEndpointFollowedCondition)
	}
	if s.tunnel == nil && s.endpoint.Reason != "" {
		meta.RemoveStatusCondition(list, infrav1.TunnelReadyCondition)
	}
	if s.InfraCluster.Spec.EtcdSnapshots == nil {
		meta.RemoveStatusCondition(list, infrav1.EtcdSnapshotsReadyCondition)
	}
	changed, err := reconcile.PatchStatus(ctx, r.Client, s.InfraCluster, scope.Status, before)
	if changed && err == nil {
		r.recordMove(s, before.Endpoint, s.InfraCluster.Status.Endpoint)
		r.recordTunnel(s, meta.FindStatusCondition(before.Conditions, infrav1.TunnelReadyCondition))
	}
	return err
}

// recordTunnel records an Event when the condition TunnelReady gets another reason. A
// cluster without control-plane hosts has nothing to tell.
func (r *Reconciler) recordTunnel(s *run, before *metav1.Condition) {
	after := s.tunnel
	if after == nil || (before != nil && before.Reason == after.Reason) {
		return
	}
	switch after.Reason {
	case infrav1.TunnelReadyReason:
		r.tunnelEvent(s, corev1.EventTypeNormal, infrav1.TunnelReadyReason)
	case infrav1.NoTunnelReason:
		r.tunnelEvent(s, corev1.EventTypeWarning, infrav1.NoTunnelReason)
	case infrav1.APIServerRefusesReason:
		r.tunnelEvent(s, corev1.EventTypeWarning, infrav1.APIServerRefusesReason)
	case infrav1.AgentTooOldReason:
		r.tunnelEvent(s, corev1.EventTypeWarning, infrav1.AgentTooOldReason)
	}
}

func (r *Reconciler) tunnelEvent(s *run, kind, reason string) {
	r.Recorder.Eventf(s.InfraCluster, nil, kind, reason, "Connect", "%s", s.tunnel.Message)
}

// recordMove counts a move, and records an Event once its completion is in status.
func (r *Reconciler) recordMove(s *run, before, after *infrav1.EndpointStatus) {
	// A move that was reconstructed after the loss of status is not a new one.
	if before == nil || after == nil || after.LastMove == nil {
		return
	}
	move, former := after.LastMove, before.LastMove
	known := former != nil && former.StartedAt.Equal(&move.StartedAt)
	if !known {
		r.Metrics.moved(move.Cause)
	}
	if move.CompletedAt.IsZero() || (known && !former.CompletedAt.IsZero()) {
		return
	}
	r.Metrics.completed(move.CompletedAt.Sub(move.StartedAt.Time))
	for _, o := range []client.Object{s.InfraCluster, s.Cluster} {
		r.Recorder.Eventf(o, nil, corev1.EventTypeNormal, infrav1.EndpointMovedReason, "Move",
			"The control plane endpoint has moved from %s to %s; nothing that can be reached uses the former one", move.From, move.To)
	}
}

// conditions returns the conditions that follow from the outcomes of the phases. It is
// pure.
func conditions(s *run) []metav1.Condition {
	if isPaused(s) {
		return []metav1.Condition{reconcile.Paused("The Cluster or this object is paused, or the Cluster is not there yet")}
	}
	endpointReady := metav1.Condition{
		Type: infrav1.ControlPlaneEndpointReadyCondition, Status: metav1.ConditionFalse, Reason: s.endpoint.Reason, Message: s.endpoint.Message,
	}
	if s.endpoint.Ready {
		endpointReady.Status = metav1.ConditionTrue
	}
	ready := endpointReady
	ready.Type = infrav1.ReadyCondition
	if s.endpoint.Ready {
		ready.Reason, ready.Message = infrav1.ProvisionedReason, ""
	}
	switch {
	case !s.InfraCluster.DeletionTimestamp.IsZero():
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, infrav1.DeletingReason, "Giving reservations back"
		if s.endpoint.Reason != "" {
			ready.Reason, ready.Message = s.endpoint.Reason, s.endpoint.Message
		}
		return []metav1.Condition{ready, reconcile.NotPaused()}
	case s.endpoint.Reason == "":
		return []metav1.Condition{reconcile.NotPaused()}
	}
	out := []metav1.Condition{ready, reconcile.NotPaused(), endpointReady}
	if s.tunnel != nil {
		out = append(out, *s.tunnel)
	}
	if s.progress != nil {
		out = append(out, followedCondition(*s.progress))
	}
	if s.snapshots.Condition != nil {
		out = append(out, *s.snapshots.Condition)
	}
	return out
}

func followedCondition(p failover.Progress) metav1.Condition {
	c := metav1.Condition{
		Type: infrav1.ControlPlaneEndpointFollowedCondition, Status: metav1.ConditionTrue, Reason: infrav1.EndpointFollowedReason,
	}
	if len(p.Remaining) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, infrav1.EndpointMovingReason
		c.Message = "May still use a former endpoint: " + failover.JoinFirst(p.Remaining, ", ")
	}
	return c
}

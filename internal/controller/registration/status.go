package registration

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

// patchStatus writes the status in one request, and only if something changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalRegistrationStatus) error {
	base := s.registration.DeepCopy()
	base.Status = *before
	after := s.registration.DeepCopy()
	publish(&after.Status, s)
	now := metav1.NewTime(r.Clock.Now())
	for _, c := range conditions(s) {
		c.LastTransitionTime = now
		c.ObservedGeneration = s.registration.Generation
		meta.SetStatusCondition(&after.Status.Conditions, c)
	}
	if !s.paused && s.registration.Spec.Agent == nil {
		meta.RemoveStatusCondition(&after.Status.Conditions, infrav1.AgentBinariesReadyCondition)
	}
	if equality.Semantic.DeepEqual(before, &after.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}

// publish sets what people and tools look for.
func publish(status *infrav1.ElementalRegistrationStatus, s *scope) {
	if s.paused {
		return
	}
	status.Endpoint = infrav1.PublishedEndpoint{URL: s.url, CABundle: s.bundle}
	status.TokenSecretRef, status.TokenExpiresAt = nil, metav1.Time{}
	if t := s.best(); t != nil {
		status.TokenSecretRef = &infrav1.LocalReference{Name: t.secret.Name}
		status.TokenExpiresAt = metav1.NewTime(t.read.ExpiresAt)
	}
}

// best is the newest token that hosts can enrol with, or else the newest.
func (s *scope) best() *token {
	for i := range s.tokens {
		if s.tokens[i].state == enrolment.Usable {
			return &s.tokens[i]
		}
	}
	if len(s.tokens) > 0 {
		return &s.tokens[0]
	}
	return nil
}

// conditions says what is the case. It is pure.
func conditions(s *scope) []metav1.Condition {
	if s.paused {
		return []metav1.Condition{{
			Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason,
			Message: "The registration has the annotation " + clusterv1.PausedAnnotation,
		}}
	}
	endpoint := metav1.Condition{
		Type: infrav1.EndpointReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.PublishedReason,
	}
	if s.url == "" {
		endpoint.Status, endpoint.Reason = metav1.ConditionFalse, infrav1.EndpointUnknownReason
		endpoint.Message = "Set spec.endpoint.url, or the manager's --agent-api-url, to the URL at which hosts reach the agent API"
	}
	usable := tokenValid(s)
	ready := metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.PublishedReason}
	for _, part := range []metav1.Condition{endpoint, usable} {
		if part.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, part.Reason, part.Message
			break
		}
	}
	all := []metav1.Condition{
		ready, endpoint, usable,
		{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason},
	}
	if s.registration.Spec.Agent != nil {
		all = append(all, agentBinariesReady(s))
	}
	return all
}

// agentBinariesReady has no part in Ready: hosts can enrol without.
func agentBinariesReady(s *scope) metav1.Condition {
	if len(s.missing) == 0 {
		return metav1.Condition{
			Type: infrav1.AgentBinariesReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.BinariesServedReason,
		}
	}
	names := make([]string, 0, len(s.missing))
	for _, binary := range s.missing {
		names = append(names, binary.Architecture+" ("+binary.SHA256+")")
	}
	return metav1.Condition{
		Type: infrav1.AgentBinariesReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.BinariesMissingReason,
		Message: "No file in the manager's --agent-binaries has the SHA-256 that is pinned for " + strings.Join(names, ", "),
	}
}

func tokenValid(s *scope) metav1.Condition {
	c := metav1.Condition{Type: infrav1.TokenValidCondition, Status: metav1.ConditionFalse}
	t := s.best()
	if t == nil {
		c.Reason = infrav1.EndpointUnknownReason
		c.Message = "A token is made once it is known where hosts find the agent API"
		return c
	}
	c.Reason = string(t.state)
	if t.state == enrolment.Usable {
		c.Status = metav1.ConditionTrue
		return c
	}
	c.Message = fmt.Sprintf("Delete Secret %s to get another token", t.secret.Name)
	return c
}

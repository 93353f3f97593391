package registration

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

// patchStatus sets the conditions and writes status in one request, if it changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalRegistrationStatus) error {
	status := &s.registration.Status
	publish(status, s)
	reconcile.SetConditions(&status.Conditions, s.registration.Generation, r.Clock.Now(), conditions(s)...)
	if !s.paused {
		removeUnused(status, &s.registration.Spec)
	}
	_, err := reconcile.PatchStatus(ctx, r.Client, s.registration, statusOf, before)
	return err
}

// publish sets the URL, the trust bundle and the token for users and tools.
func publish(status *infrav1.ElementalRegistrationStatus, s *scope) {
	if s.paused {
		return
	}
	status.Endpoint = infrav1.PublishedEndpoint{URL: s.url, CABundle: s.trustBundle}
	status.TokenSecretRef, status.TokenExpiresAt = nil, metav1.Time{}
	if t := s.bestToken(); t != nil {
		status.TokenSecretRef = &infrav1.LocalReference{Name: t.secret.Name}
		status.TokenExpiresAt = metav1.NewTime(t.read.ExpiresAt)
	}
}

// bestToken returns the newest usable token; the newest one if none is usable; or nil.
func (s *scope) bestToken() *token {
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

// conditions returns the conditions of the registration. It is pure.
func conditions(s *scope) []metav1.Condition {
	if s.paused {
		return []metav1.Condition{reconcile.Paused("The registration has the annotation " + clusterv1.PausedAnnotation)}
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
		ready, endpoint, usable, reconcile.NotPaused(),
	}
	if s.registration.Spec.Agent != nil {
		all = append(all, agentBinariesReady(s))
	}
	if s.followers != nil {
		all = append(all, successorReached(s.followers))
	}
	return all
}

// agentBinariesReady returns the condition AgentBinariesReady. It does not count for
// Ready, because hosts can enrol without the binaries.
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
	t := s.bestToken()
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

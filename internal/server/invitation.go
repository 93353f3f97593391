package server

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// invitation is what a token is good for.
type invitation struct {
	secret       *corev1.Secret
	token        enrolment.Token
	registration *infrav1.ElementalRegistration
}

// approves tells whether the invitation lets hosts in without an administrator.
func (i *invitation) approves() bool {
	return i.registration.Spec.Approval == infrav1.ApprovalAutomatic && !i.token.LongLived(i.secret)
}

// refusal is an error whose reason is for the audit log alone.
type refusal struct {
	reason string
	// answer is the same for all reasons.
	answer error
}

// Error implements error.
func (r *refusal) Error() string { return r.answer.Error() + ": " + r.reason }

// Unwrap leads to what the caller is told.
func (r *refusal) Unwrap() error { return r.answer }

// refuseToken makes a refusal of a token; all get the same answer.
func refuseToken(reason string) error { return &refusal{reason: reason, answer: errTokenRefused()} }

// reasonOf is the audit log's reason for an error.
func reasonOf(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason
	}
	return err.Error()
}

// invitation finds out what a token is good for. All tokens that are good for
// nothing get the same answer.
func (s *Server) invitation(ctx context.Context, token string) (*invitation, error) {
	if token == "" {
		return nil, refuseToken("NoToken")
	}
	var secrets corev1.SecretList
	hash := identity.HashToken(token)
	if err := s.client.List(ctx, &secrets, client.MatchingFields{index.TokenByHash: hash}); err != nil {
		return nil, fmt.Errorf("looking up token: %w", err)
	}
	reason := "UnknownToken"
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		read, err := enrolment.ReadToken(secret)
		if err != nil || !read.Matches(token) || !secret.DeletionTimestamp.IsZero() {
			continue
		}
		if state := read.State(s.clock.Now()); state != enrolment.Usable {
			reason = string(state)
			continue
		}
		registration := &infrav1.ElementalRegistration{}
		key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Labels[infrav1.RegistrationLabel]}
		err = s.client.Get(ctx, key, registration)
		if apierrors.IsNotFound(err) || err == nil && !registration.DeletionTimestamp.IsZero() {
			reason = "NoRegistration"
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting registration: %w", err)
		}
		return &invitation{secret: secret, token: read, registration: registration}, nil
	}
	return nil, refuseToken(reason)
}

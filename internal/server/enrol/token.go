package enrol

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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// resolvedToken is a usable registration token with its Secret and registration.
type resolvedToken struct {
	secret       *corev1.Secret
	token        enrolment.Token
	registration *infrav1.ElementalRegistration
}

// approves reports whether hosts that enrol with the token are approved without an
// administrator.
func (t *resolvedToken) approves() bool {
	return t.registration.Spec.Approval == infrav1.ApprovalAutomatic && !t.token.LongLived(t.secret)
}

// refusal is an error whose reason only the audit log shows.
type refusal struct {
	reason string
	// answer is sent to the caller. It is the same for all reasons.
	answer error
}

// Error implements error.
func (r *refusal) Error() string { return r.answer.Error() + ": " + r.reason }

// Unwrap returns the answer.
func (r *refusal) Unwrap() error { return r.answer }

// refuseToken returns the refusal of a token.
func refuseToken(reason string) error {
	return &refusal{reason: reason, answer: problem.TokenRefused()}
}

// reasonOf returns the reason of an error for the audit log.
func reasonOf(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason
	}
	return err.Error()
}

// resolveToken finds the Secret and the registration of a token. It returns a refusal for a
// token that can't be used.
func (e *Enroller) resolveToken(ctx context.Context, token string) (*resolvedToken, error) {
	if token == "" {
		return nil, refuseToken("NoToken")
	}
	var secrets corev1.SecretList
	hash := identity.HashToken(token)
	if err := e.client.List(ctx, &secrets, client.MatchingFields{index.TokenByHash: hash}); err != nil {
		return nil, fmt.Errorf("looking up token: %w", err)
	}
	reason := "UnknownToken"
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		read, err := enrolment.ReadToken(secret)
		if err != nil || !read.Matches(token) || !secret.DeletionTimestamp.IsZero() {
			continue
		}
		if state := read.State(e.clock.Now()); state != enrolment.Usable {
			reason = string(state)
			continue
		}
		registration := &infrav1.ElementalRegistration{}
		key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Labels[infrav1.RegistrationLabel]}
		err = e.client.Get(ctx, key, registration)
		if apierrors.IsNotFound(err) || err == nil && !registration.DeletionTimestamp.IsZero() {
			reason = "NoRegistration"
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting registration: %w", err)
		}
		return &resolvedToken{secret: secret, token: read, registration: registration}, nil
	}
	return nil, refuseToken(reason)
}

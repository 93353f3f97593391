package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// tokenSuffix ends the name of the Secret of the registration's own token. The name is
// fixed, so that two attempts create one token.
const tokenSuffix = "-token"

// readTokens reads the registration's token Secrets. It ignores malformed ones, which
// the agent API rejects.
func (r *Reconciler) readTokens(ctx context.Context, s *scope) error {
	var secrets corev1.SecretList
	if err := r.Client.List(ctx, &secrets, client.InNamespace(s.registration.Namespace),
		client.MatchingLabels{infrav1.RegistrationLabel: s.registration.Name}); err != nil {
		return fmt.Errorf("listing token Secrets: %w", err)
	}
	for i := range secrets.Items {
		s.addToken(&secrets.Items[i], r.Clock.Now())
	}
	return nil
}

// addToken adds a well-formed token Secret to s.tokens.
func (s *scope) addToken(secret *corev1.Secret, now time.Time) {
	read, err := enrolment.ReadToken(secret)
	if err != nil || !secret.DeletionTimestamp.IsZero() {
		return
	}
	s.tokens = append(s.tokens, token{secret: secret, read: read, state: read.State(now)})
	slices.SortStableFunc(s.tokens, func(a, b token) int {
		return b.secret.CreationTimestamp.Compare(a.secret.CreationTimestamp.Time)
	})
}

// ensureToken creates the registration's own token. It waits until the URL is known:
// without it the token could not be used, but its lifetime would run.
func (r *Reconciler) ensureToken(ctx context.Context, s *scope) error {
	if s.url == "" || slices.ContainsFunc(s.tokens, func(t token) bool { return isOwn(t.secret, s) }) {
		return nil
	}
	plain := identity.NewToken()
	policy := s.registration.Spec.Token
	now := r.Clock.Now()
	made := enrolment.Token{
		Hash:      identity.HashToken(plain),
		ExpiresAt: now.Add(time.Duration(policy.TTLSeconds) * time.Second),
		IssuedAt:  now,
		MaxUses:   int(policy.MaxUses),
	}
	config, err := enrolment.AgentConfig{Servers: []string{s.url}, TrustBundle: s.trustBundle, Token: plain}.Encode()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.registration.Namespace,
			Name:      s.registration.Name + tokenSuffix,
			Labels:    map[string]string{infrav1.RegistrationLabel: s.registration.Name},
		},
		Type: infrav1.TokenSecretType,
		Data: map[string][]byte{enrolment.ConfigKey: config},
	}
	made.WriteTo(secret)
	if err := controllerutil.SetControllerReference(s.registration, secret, r.Client.Scheme()); err != nil {
		return fmt.Errorf("owning token Secret: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Creating registration token", "Secret", klog.KObj(secret), "expiresAt", made.ExpiresAt, "maxUses", made.MaxUses)
	err = r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		// Either the cache is stale, and its update triggers another reconcile, or another
		// client has created a Secret of this name.
		return fmt.Errorf("creating token Secret: %w", errNameTaken{secret.Name})
	}
	if err != nil {
		return fmt.Errorf("creating token Secret: %w", err)
	}
	s.addToken(secret, r.Clock.Now())
	return nil
}

// isOwn reports whether a token Secret is the registration's own token. A Secret that was restored without its owner is
// known by its name. A Secret of this name without a controller is the own token, whoever created it: it has the label
// and the type of tokens.
func isOwn(secret *corev1.Secret, s *scope) bool {
	owner := metav1.GetControllerOfNoCopy(secret)
	if owner == nil {
		return secret.Name == s.registration.Name+tokenSuffix
	}
	return owner.UID == s.registration.UID
}

// errNameTaken means that a Secret with the name exists and, as far as the cache shows,
// does not belong to the registration.
type errNameTaken struct{ name string }

// Error implements error.
func (e errNameTaken) Error() string {
	return "a Secret named " + e.name + " exists already"
}

// recordIssue stores when the token was issued. The creation time of the Secret becomes
// later when the Secret is moved or restored, and a long-lived token would look short-lived.
func recordIssue(secret *corev1.Secret, t enrolment.Token) {
	if _, recorded := secret.Data[enrolment.IssuedAtKey]; recorded {
		return
	}
	secret.Data[enrolment.IssuedAtKey] = []byte(t.Issued(secret).UTC().Format(time.RFC3339))
}

// refreshSecrets updates the token Secrets. It stores when the token was issued. It sets the
// owner, so that a Secret is moved and deleted with its registration. It updates the agent
// configuration. It removes the plain token when the token can no longer be used.
func (r *Reconciler) refreshSecrets(ctx context.Context, s *scope) error {
	var errs []error
	for _, t := range s.tokens {
		after := t.secret.DeepCopy()
		recordIssue(after, t.read)
		if err := r.own(after, s); err != nil {
			return err
		}
		if t.state != enrolment.Usable {
			delete(after.Data, enrolment.ConfigKey)
		} else if isOwn(t.secret, s) {
			if err := refreshConfig(after, t.read, s); err != nil {
				return err
			}
		}
		if equality.Semantic.DeepEqual(t.secret, after) {
			continue
		}
		err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(t.secret, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("refreshing token Secret: %w", err))
		}
	}
	return errors.Join(errs...)
}

// own makes the registration the owner of a token Secret, and its controller, if it is the
// registration's own token.
func (r *Reconciler) own(secret *corev1.Secret, s *scope) error {
	set := controllerutil.SetOwnerReference
	if isOwn(secret, s) {
		set = controllerutil.SetControllerReference
	}
	if err := set(s.registration, secret, r.Client.Scheme()); err != nil {
		return fmt.Errorf("owning token Secret: %w", err)
	}
	return nil
}

// refreshConfig updates the URL and the trust bundle in the agent configuration of the
// registration's own token. A configuration with another token was changed by a user and
// stays as it is.
func refreshConfig(secret *corev1.Secret, t enrolment.Token, s *scope) error {
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	if err != nil || !t.Matches(config.Token) || s.url == "" {
		return nil //nolint:nilerr // a configuration that can't be decoded stays as it is
	}
	if slices.Equal(config.Servers, []string{s.url}) && config.TrustBundle == s.trustBundle {
		return nil
	}
	config.Servers, config.TrustBundle = []string{s.url}, s.trustBundle
	text, err := config.Encode()
	if err != nil {
		return err
	}
	secret.Data[enrolment.ConfigKey] = text
	return nil
}

// untilExpiry returns the time until the next usable token expires; 0 if none expires.
func (r *Reconciler) untilExpiry(s *scope) time.Duration {
	var next time.Duration
	for _, t := range s.tokens {
		if t.state != enrolment.Usable {
			continue
		}
		// One second more, so that the token has expired by then.
		if left := t.read.ExpiresAt.Sub(r.Clock.Now()) + time.Second; next == 0 || left < next {
			next = left
		}
	}
	return next
}

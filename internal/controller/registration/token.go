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

// tokenSuffix makes the name of the Secret of the token that is made by itself.
// The name is always the same, so two attempts make one token.
const tokenSuffix = "-token"

// readTokens reads the registration's token Secrets. What is not well-formed is
// no token; the agent API doesn't take it either.
func (r *Reconciler) readTokens(ctx context.Context, s *scope) error {
	var secrets corev1.SecretList
	if err := r.Client.List(ctx, &secrets, client.InNamespace(s.registration.Namespace),
		client.MatchingLabels{infrav1.RegistrationLabel: s.registration.Name}); err != nil {
		return fmt.Errorf("listing token Secrets: %w", err)
	}
	for i := range secrets.Items {
		s.add(&secrets.Items[i], r.Clock.Now())
	}
	return nil
}

// add takes a Secret up if it is a token's.
func (s *scope) add(secret *corev1.Secret, now time.Time) {
	read, err := enrolment.ReadToken(secret)
	if err != nil || !secret.DeletionTimestamp.IsZero() {
		return
	}
	s.tokens = append(s.tokens, token{secret: secret, read: read, state: read.State(now)})
	slices.SortStableFunc(s.tokens, func(a, b token) int {
		return b.secret.CreationTimestamp.Compare(a.secret.CreationTimestamp.Time)
	})
}

// ensureToken makes the registration's own token if there is none. It waits for
// the URL, for the token's time would run while nobody can use it.
func (r *Reconciler) ensureToken(ctx context.Context, s *scope) error {
	isOwn := func(t token) bool { return metav1.IsControlledBy(t.secret, s.registration) }
	if s.url == "" || slices.ContainsFunc(s.tokens, isOwn) {
		return nil
	}
	plain := identity.NewToken()
	policy := s.registration.Spec.Token
	made := enrolment.Token{
		Hash:      identity.HashToken(plain),
		ExpiresAt: r.Clock.Now().Add(time.Duration(policy.TTLSeconds) * time.Second),
		MaxUses:   int(policy.MaxUses),
	}
	config, err := enrolment.AgentConfig{Servers: []string{s.url}, TrustBundle: s.bundle, Token: plain}.Encode()
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
	ctrl.LoggerFrom(ctx).Info("Making registration token", "Secret", klog.KObj(secret), "expiresAt", made.ExpiresAt, "maxUses", made.MaxUses)
	err = r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		// Either the cache has not seen it yet and will bring us back, or somebody
		// else's Secret has the name.
		return fmt.Errorf("creating token Secret: %w", errNameTaken{secret.Name})
	}
	if err != nil {
		return fmt.Errorf("creating token Secret: %w", err)
	}
	s.add(secret, r.Clock.Now())
	return nil
}

// errNameTaken tells that a Secret of the name is there but is not ours, as far
// as the cache knows.
type errNameTaken struct{ name string }

// Error implements error.
func (e errNameTaken) Error() string {
	return "a Secret named " + e.name + " exists already"
}

// refreshSecrets keeps the token Secrets as they should be: owned, so that they
// move and go with the registration; with a configuration that hosts can use; and
// without the plain token once that is good for nothing.
func (r *Reconciler) refreshSecrets(ctx context.Context, s *scope) error {
	var errs []error
	for _, t := range s.tokens {
		after := t.secret.DeepCopy()
		if err := controllerutil.SetOwnerReference(s.registration, after, r.Client.Scheme(), keepController(t.secret)); err != nil {
			return fmt.Errorf("owning token Secret: %w", err)
		}
		if t.state != enrolment.Usable {
			delete(after.Data, enrolment.ConfigKey)
		} else if metav1.IsControlledBy(t.secret, s.registration) {
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

// keepController leaves the controller mark of an owner reference as it is.
func keepController(secret *corev1.Secret) controllerutil.OwnerReferenceOption {
	return func(ref *metav1.OwnerReference) {
		for _, is := range secret.OwnerReferences {
			if is.UID == ref.UID {
				ref.Controller, ref.BlockOwnerDeletion = is.Controller, is.BlockOwnerDeletion
			}
		}
	}
}

// refreshConfig brings the agent configuration of the registration's own token up
// to date. A configuration without that token was changed by somebody on
// purpose.
func refreshConfig(secret *corev1.Secret, t enrolment.Token, s *scope) error {
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	if err != nil || !t.Matches(config.Token) || s.url == "" {
		return nil //nolint:nilerr // documented
	}
	if slices.Equal(config.Servers, []string{s.url}) && config.TrustBundle == s.bundle {
		return nil
	}
	config.Servers, config.TrustBundle = []string{s.url}, s.bundle
	text, err := config.Encode()
	if err != nil {
		return err
	}
	secret.Data[enrolment.ConfigKey] = text
	return nil
}

// untilExpiry is when the next token expires; zero if none will.
func (r *Reconciler) untilExpiry(s *scope) time.Duration {
	var next time.Duration
	for _, t := range s.tokens {
		if t.state != enrolment.Usable {
			continue
		}
		// A little later, so that it has expired by then.
		if left := t.read.ExpiresAt.Sub(r.Clock.Now()) + time.Second; next == 0 || left < next {
			next = left
		}
	}
	return next
}

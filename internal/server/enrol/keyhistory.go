package enrol

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

// KeyHistory knows the keys of the hosts that have enrolled with a token, those of deleted
// hosts included. It is stored in the Secrets of the tokens: it needs no notice of a
// deletion, which a manager that does not run would miss, and a move takes it along.
type KeyHistory struct {
	client client.Client
	live   client.Reader
}

// NewKeyHistory returns a KeyHistory. c reads from a cache, live from the API server.
func NewKeyHistory(c client.Client, live client.Reader) *KeyHistory {
	return &KeyHistory{client: c, live: live}
}

// Contains reports whether a host with the key has enrolled with a token of the namespace.
func (h *KeyHistory) Contains(ctx context.Context, namespace, fingerprint string) (bool, error) {
	secrets, err := h.secrets(ctx, namespace, fingerprint)
	if err != nil {
		return false, err
	}
	for _, secret := range secrets {
		// The cache may still show the key of an enrolment that has just failed.
		newest := &corev1.Secret{}
		err := h.live.Get(ctx, client.ObjectKeyFromObject(secret), newest)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading token Secret: %w", err)
		}
		if err == nil && enrolment.RemembersKey(newest, fingerprint) {
			return true, nil
		}
	}
	return false, nil
}

// Add adds the key of a host that presents the token of the Secret without using it.
func (h *KeyHistory) Add(ctx context.Context, secret *corev1.Secret, fingerprint string) error {
	_, err := updateSecret(ctx, h.client, h.live, secret, func(after *corev1.Secret) bool {
		if enrolment.RemembersKey(after, fingerprint) {
			return false
		}
		enrolment.RememberKey(after, fingerprint)
		return true
	})
	return client.IgnoreNotFound(err)
}

// AddNext adds the next key of a host wherever the current one is known. It must be called
// before the host may use the next key.
func (h *KeyHistory) AddNext(ctx context.Context, namespace, current, next string) error {
	secrets, err := h.secrets(ctx, namespace, current)
	if err != nil {
		return err
	}
	for _, secret := range secrets {
		if _, err := updateSecret(ctx, h.client, h.live, secret, func(after *corev1.Secret) bool {
			return enrolment.RememberNextKey(after, current, next)
		}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// secrets returns the token Secrets of the namespace that know the key.
func (h *KeyHistory) secrets(ctx context.Context, namespace, fingerprint string) ([]*corev1.Secret, error) {
	var list corev1.SecretList
	if err := h.client.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{infrav1.RegistrationLabel}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing token Secrets: %w", err)
	}
	var found []*corev1.Secret
	for i := range list.Items {
		if secret := &list.Items[i]; secret.Type == infrav1.TokenSecretType && enrolment.RemembersKey(secret, fingerprint) {
			found = append(found, secret)
		}
	}
	return found, nil
}

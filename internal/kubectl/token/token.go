package token

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/count"
)

const (
	// maxTokens is the number of token Secrets of one registration that are read.
	maxTokens  = 100
	timeFormat = "2006-01-02T15:04:05Z"
)

// View is a registration with its tokens.
type View struct {
	registration *infrav1.ElementalRegistration
	// secrets are the token Secrets, the newest first.
	secrets []corev1.Secret
	now     time.Time
}

// Read reads a registration and its token Secrets.
func Read(ctx context.Context, c client.Reader, namespace, name string, now time.Time) (*View, error) {
	v := &View{registration: &infrav1.ElementalRegistration{}, now: now}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, v.registration)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no ElementalRegistration %s in namespace %s; name another, or give --namespace", name, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ElementalRegistration %s: %w", name, err)
	}
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{infrav1.RegistrationLabel: name}, client.Limit(maxTokens)); err != nil {
		return nil, fmt.Errorf("listing token Secrets: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Type == infrav1.TokenSecretType {
			v.secrets = append(v.secrets, list.Items[i])
		}
	}
	slices.SortStableFunc(v.secrets, func(a, b corev1.Secret) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return v, nil
}

func (v *View) subject() string {
	return fmt.Sprintf("ElementalRegistration %s/%s", v.registration.Namespace, v.registration.Name)
}

func (v *View) command() string {
	return fmt.Sprintf("kubectl elemental token %s -n %s", v.registration.Name, v.registration.Namespace)
}

// Lines returns what people may see of the tokens: everything but the tokens.
func (v *View) Lines() []string {
	lines := []string{fmt.Sprintf("%s: %s", v.subject(), count.Of(len(v.secrets), "token"))}
	url := v.registration.Status.Endpoint.URL
	if url == "" {
		url = "unknown: set spec.endpoint.url, or the manager's flag --agent-api-url"
	}
	lines = append(lines, "  Server: "+url)
	for i := range v.secrets {
		lines = append(lines, "  "+v.describe(&v.secrets[i]))
	}
	switch {
	case v.usable() != nil:
		lines = append(lines, "  The agent configuration with the token: "+v.command()+" --show")
	case len(v.secrets) > 0:
		lines = append(lines, "  No host can enrol by them. For another token: "+v.command()+" --rotate")
	}
	return lines
}

func (v *View) describe(secret *corev1.Secret) string {
	token, err := enrolment.ReadToken(secret)
	if err != nil {
		return fmt.Sprintf("Secret %s is malformed: %v", secret.Name, err)
	}
	expiry := "expired at " + token.ExpiresAt.UTC().Format(timeFormat)
	if v.now.Before(token.ExpiresAt) {
		expiry = fmt.Sprintf("expires at %s (in %s)", token.ExpiresAt.UTC().Format(timeFormat), duration.HumanDuration(token.ExpiresAt.Sub(v.now)))
	}
	return fmt.Sprintf("Secret %s: %s, %s, %d of %s left", secret.Name, token.State(v.now), expiry, max(0, token.MaxUses-token.Used), count.Of(token.MaxUses, "use"))
}

// usable returns the newest Secret whose token hosts can enrol with.
func (v *View) usable() *corev1.Secret {
	for i := range v.secrets {
		if token, err := enrolment.ReadToken(&v.secrets[i]); err == nil && token.State(v.now) == enrolment.Usable && len(v.secrets[i].Data[enrolment.ConfigKey]) > 0 {
			return &v.secrets[i]
		}
	}
	return nil
}

// Config returns the agent configuration with the token.
func (v *View) Config() ([]byte, error) {
	secret := v.usable()
	if secret == nil {
		return nil, &change.Refusal{Subject: v.subject(), Reason: "it has no token that a host can enrol with", Remedy: "Make another: " + v.command() + " --rotate"}
	}
	return secret.Data[enrolment.ConfigKey], nil
}

// Rotate plans to delete the token that the manager made, so that it makes another.
func (v *View) Rotate() (*change.Plan, error) {
	refuse := func(reason, remedy string) (*change.Plan, error) {
		return nil, &change.Refusal{Subject: v.subject(), Reason: reason, Remedy: remedy}
	}
	switch {
	case !v.registration.DeletionTimestamp.IsZero():
		return refuse("it is being deleted", "Create another registration")
	case annotations.HasPaused(v.registration):
		return refuse("it is paused, so the manager would make no other token", "End the pause first")
	case v.registration.Status.Endpoint.URL == "":
		return refuse("its server URL is unknown, so the manager would make no other token", "Set spec.endpoint.url, or the manager's flag --agent-api-url")
	}
	for i := range v.secrets {
		secret := &v.secrets[i]
		if !metav1.IsControlledBy(secret, v.registration) {
			continue
		}
		p := change.Delete("Secret", secret, "revoke this token of "+v.subject(), "it is deleted. The manager makes another token within seconds: "+v.command())
		p.Effects = []string{
			v.describe(secret),
			"No host can enrol any more with an agent configuration that has this token. Enrolled hosts stay as they are",
			"The Secret remembers the keys that it enrolled. A host of them that was deleted counts as new afterwards",
		}
		return p, nil
	}
	return refuse("it has no token that the manager made", "The manager makes one within seconds; the condition TokenValid says why it does not")
}

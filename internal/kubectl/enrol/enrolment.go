package enrol

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/count"
)

// Enrolment is what a machine needs to enrol. It contains a token.
type Enrolment struct {
	// Namespace and Registration name the ElementalRegistration.
	Namespace, Registration string
	// Server is the server URL.
	Server string
	// TrustBundle has the CA certificates of the server, in PEM.
	TrustBundle string
	// Configuration is the agent's configuration file.
	Configuration string
	// ExpiresAt is when the token expires, and Uses how many machines can enrol with it.
	ExpiresAt time.Time
	Uses      int
}

// Read reads what machines of a registration need. An error says what is missing, and what provides
// it.
func Read(ctx context.Context, c client.Reader, now time.Time, namespace, name string) (*Enrolment, error) {
	registration := &infrav1.ElementalRegistration{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, registration)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no ElementalRegistration %s in namespace %s", name, namespace)
	case err != nil:
		return nil, fmt.Errorf("reading the ElementalRegistration: %w", err)
	case registration.Status.Endpoint.URL == "" || registration.Status.Endpoint.CABundle == "":
		return nil, fmt.Errorf("the ElementalRegistration %s has no server URL for hosts yet (%s): set its spec.endpoint.url, "+
			"or the manager's flag --agent-api-url", name, reason(registration, infrav1.EndpointReadyCondition))
	case registration.Status.TokenSecretRef == nil:
		return nil, fmt.Errorf("the ElementalRegistration %s has no usable token (%s): delete its Secret to get another one, "+
			"kubectl -n %s delete secret -l %s=%s", name, reason(registration, infrav1.TokenValidCondition), namespace, infrav1.RegistrationLabel, name)
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: registration.Status.TokenSecretRef.Name}, secret); err != nil {
		return nil, fmt.Errorf("reading the Secret with the token, which takes the right to get it: %w", err)
	}
	return newEnrolment(registration, secret, now)
}

// newEnrolment checks the token of the Secret, because the registration's status may be older.
func newEnrolment(registration *infrav1.ElementalRegistration, secret *corev1.Secret, now time.Time) (*Enrolment, error) {
	token, err := enrolment.ReadToken(secret)
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", secret.Name, err)
	}
	if state := token.State(now); state != enrolment.Usable {
		return nil, fmt.Errorf("the token in the Secret %s is not usable (%s; %d of %s, valid until %s): delete the Secret to get another one, "+
			"kubectl -n %s delete secret %s", secret.Name, state, token.Used, count.Of(token.MaxUses, "use"), token.ExpiresAt.Format(time.RFC3339), secret.Namespace, secret.Name)
	}
	text := secret.Data[enrolment.ConfigKey]
	config, err := enrolment.DecodeAgentConfig(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the Secret %s: %w", enrolment.ConfigKey, secret.Name, err)
	}
	if config.Token == "" || len(config.Servers) == 0 || config.TrustBundle == "" {
		return nil, fmt.Errorf("the Secret %s has no complete agent configuration: its key %s must have servers, trustBundle and token", secret.Name, enrolment.ConfigKey)
	}
	return &Enrolment{
		Namespace: registration.Namespace, Registration: registration.Name, Server: config.Servers[0], TrustBundle: config.TrustBundle,
		Configuration: string(text), ExpiresAt: token.ExpiresAt, Uses: token.MaxUses - token.Used,
	}, nil
}

// reason returns the reason and the message of a condition.
func reason(registration *infrav1.ElementalRegistration, condition string) string {
	c := meta.FindStatusCondition(registration.Status.Conditions, condition)
	if c == nil {
		return "the manager has not reconciled it"
	}
	if c.Message == "" {
		return c.Reason
	}
	return c.Reason + ": " + c.Message
}

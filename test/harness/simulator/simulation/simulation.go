package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

const (
	// Namespace is the namespace of all hosts and clusters.
	Namespace = "default"
	// Registration is the name of the ElementalRegistration that hosts enrol through.
	Registration = "simulated"

	// tokenLife is the validity of the registration token.
	tokenLife = 24 * time.Hour
	// registrationTime bounds the creation of the registration: a new API server may be slow.
	registrationTime = time.Minute
)

// Options are the settings of a Simulation. The zero value has one host.
type Options struct {
	// Hosts is the number of virtual hosts.
	Hosts int
	// Management has the settings of the management cluster. Its manager is always built for virtual hosts.
	Management embedded.Options
	// Workload has the settings of the workload clusters.
	Workload workload.Options
	// Fleet has the settings of the hosts. Start sets count, software, servers, trust bundle, token and log.
	Fleet fleet.Settings
	// Progress, if not nil, gets a line when a step starts and when it ends.
	Progress io.Writer
	// AgentLog is the log file of all agents; blank discards their logs.
	AgentLog string
}

// Simulation is a running simulation. Its fields are its parts.
type Simulation struct {
	Management *embedded.Cluster
	Clusters   *workload.Clusters
	Fleet      *fleet.Fleet
	// Admin is an administrator's client for the management cluster. It has no cache.
	Admin client.Client

	checkout string
	// namesProxy is embedded.Cluster's Proxy.
	namesProxy string
	log        *os.File
}

// Start starts all parts; the hosts are powered off. After an error nothing is left running. ctx bounds the start,
// not the life of the Simulation.
func Start(ctx context.Context, o Options) (_ *Simulation, err error) {
	o.Management.Simulation = true
	if o.Management.Progress == nil {
		o.Management.Progress = o.Progress
	}
	s := &Simulation{checkout: o.Management.Checkout}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.checkout == "" {
		if s.checkout, err = checkout(ctx); err != nil {
			return nil, err
		}
		o.Management.Checkout = s.checkout
	}
	if s.Management, err = embedded.Start(ctx, o.Management); err != nil {
		return nil, err
	}
	s.namesProxy = s.Management.Proxy
	if s.Admin, err = newClient(s.Management); err != nil {
		return nil, err
	}
	if o.Fleet.Token, err = s.register(ctx); err != nil {
		return nil, err
	}
	if s.Clusters, err = workload.New(ctx, o.Workload); err != nil {
		return nil, err
	}
	if o.AgentLog != "" {
		if s.log, err = os.OpenFile(o.AgentLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return nil, fmt.Errorf("making the log of agents: %w", err)
		}
		o.Fleet.Log = slog.New(slog.NewTextHandler(s.log, nil))
	}
	o.Fleet.Count, o.Fleet.Software = max(o.Hosts, 1), s.Clusters
	o.Fleet.Servers, o.Fleet.TrustBundle = []string{s.Management.AgentURL}, s.Management.CABundle
	if s.Fleet, err = fleet.New(o.Fleet); err != nil {
		return nil, err
	}
	return s, nil
}

// Close stops everything. When it returns, no process and no listener is left.
func (s *Simulation) Close() error {
	var failures []error
	if s.Fleet != nil {
		failures = append(failures, s.Fleet.Close())
	}
	if s.Clusters != nil {
		s.Clusters.Close()
	}
	if s.Management != nil {
		failures = append(failures, s.Management.Stop())
	}
	if s.log != nil {
		failures = append(failures, s.log.Close())
	}
	return errors.Join(failures...)
}

// Scheme returns a scheme with the kinds of management clusters.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making a scheme: %w", err)
		}
	}
	return scheme, nil
}

func newClient(c *embedded.Cluster) (client.Client, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	admin, err := client.New(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return admin, nil
}

// register creates an ElementalRegistration and a token Secret, and returns the token.
func (s *Simulation) register(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTime)
	defer cancel()
	registration := &infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Registration},
		Spec:       infrav1.ElementalRegistrationSpec{Approval: infrav1.ApprovalAutomatic},
	}
	if err := s.Admin.Create(ctx, registration); err != nil {
		return "", fmt.Errorf("making the registration: %w", err)
	}
	plain := identity.NewToken()
	token := enrolment.Token{Hash: identity.HashToken(plain), ExpiresAt: time.Now().Add(tokenLife), MaxUses: fleet.MaxHosts}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: Registration + "-hosts", Labels: map[string]string{infrav1.RegistrationLabel: Registration},
		},
		Type: infrav1.TokenSecretType, Data: map[string][]byte{enrolment.ConfigKey: []byte("token: " + plain)},
	}
	token.WriteTo(secret)
	if err := s.Admin.Create(ctx, secret); err != nil {
		return "", fmt.Errorf("making the token of hosts: %w", err)
	}
	return plain, nil
}

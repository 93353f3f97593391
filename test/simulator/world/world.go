package world

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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload"
)

const (
	// Namespace has everything that belongs to the hosts and their clusters.
	Namespace = "default"
	// Registration is the name of the ElementalRegistration that hosts enrol through.
	Registration = "simulated"

	// tokenLife is how long hosts may enrol.
	tokenLife = 24 * time.Hour
	// registrationTime bounds how long a new API server may take to serve what a registration needs.
	registrationTime = time.Minute
)

// Options are the settings of a World. The zero value has one host.
type Options struct {
	// Hosts is how many there are.
	Hosts int
	// Management are further settings of the management cluster. Its manager is always one for virtual hosts.
	Management embedded.Options
	// Workload are those of workload clusters.
	Workload workload.Options
	// Fleet are those of the hosts; what the World knows is filled in.
	Fleet fleet.Settings
	// Progress gets a line when a step starts and when it ends. Nil: nobody is told.
	Progress io.Writer
	// AgentLog is the file that gets what agents log. Blank: nobody does.
	AgentLog string
}

// World is a simulation that runs. Its fields are its parts.
type World struct {
	Management *embedded.Cluster
	Clusters   *workload.Clusters
	Fleet      *fleet.Fleet
	// Admin may do everything in the management cluster, and reads from the API server.
	Admin client.Client

	checkout string
	log      *os.File
}

// Start starts it all, with hosts that are off. Without success nothing is left running. The end of ctx ends a
// start, but no World that has started.
func Start(ctx context.Context, o Options) (_ *World, err error) {
	o.Management.Simulation = true
	if o.Management.Progress == nil {
		o.Management.Progress = o.Progress
	}
	w := &World{checkout: o.Management.Checkout}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.checkout == "" {
		if w.checkout, err = checkout(ctx); err != nil {
			return nil, err
		}
		o.Management.Checkout = w.checkout
	}
	if w.Management, err = embedded.Start(ctx, o.Management); err != nil {
		return nil, err
	}
	if w.Admin, err = newClient(w.Management); err != nil {
		return nil, err
	}
	if o.Fleet.Token, err = w.register(ctx); err != nil {
		return nil, err
	}
	if w.Clusters, err = workload.New(ctx, o.Workload); err != nil {
		return nil, err
	}
	if o.AgentLog != "" {
		if w.log, err = os.OpenFile(o.AgentLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return nil, fmt.Errorf("making the log of agents: %w", err)
		}
		o.Fleet.Log = slog.New(slog.NewTextHandler(w.log, nil))
	}
	o.Fleet.Count, o.Fleet.Software = max(o.Hosts, 1), w.Clusters
	o.Fleet.Servers, o.Fleet.TrustBundle = []string{w.Management.AgentURL}, w.Management.CABundle
	if w.Fleet, err = fleet.New(o.Fleet); err != nil {
		return nil, err
	}
	return w, nil
}

// Close ends everything and returns when nothing runs or listens any more.
func (w *World) Close() error {
	var failures []error
	if w.Fleet != nil {
		failures = append(failures, w.Fleet.Close())
	}
	if w.Clusters != nil {
		w.Clusters.Close()
	}
	if w.Management != nil {
		failures = append(failures, w.Management.Stop())
	}
	if w.log != nil {
		failures = append(failures, w.log.Close())
	}
	return errors.Join(failures...)
}

// Scheme has the kinds of management clusters.
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

// register makes what lets hosts in, and returns their token.
func (w *World) register(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTime)
	defer cancel()
	registration := &infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Registration},
		Spec:       infrav1.ElementalRegistrationSpec{Approval: infrav1.ApprovalAutomatic},
	}
	if err := w.Admin.Create(ctx, registration); err != nil {
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
	if err := w.Admin.Create(ctx, secret); err != nil {
		return "", fmt.Errorf("making the token of hosts: %w", err)
	}
	return plain, nil
}

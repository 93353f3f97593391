package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/nodes"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/sites"
)

const (
	// namespace is the namespace of the fleet.
	namespace = "fleet"
	// bareNamespace has unmanaged objects: the manager doesn't watch it, or has ended.
	bareNamespace = "bare"
	// often is the polling interval. Reading the manager's metrics ten times a second would cost an eighth of its CPU time in
	// a storm.
	often = 500 * time.Millisecond
	// stepTimeout is the timeout of steps without a target.
	stepTimeout = 15 * time.Minute
	// rampRate is the number of hosts switched on per second in preparations.
	rampRate = 200
	// connectedHosts is the manager's metric of connected hosts.
	connectedHosts = "elemental_agent_api_connected_hosts"
)

// rig is a management cluster with virtual hosts, on which scenarios measure.
type rig struct {
	*run

	cluster  *embedded.Cluster
	admin    client.WithWatch
	machines *machines.Client
	api      *measure.APIServer
	gauges   *measure.Gauges
	token    string
	// nodes says that bootstraps of hosts set up API servers.
	nodes bool
	// sites says that hosts fetch bundles, and that their nodes can be upgraded.
	sites  bool
	fleets []hosts
}

// hosts are virtual hosts that were switched on together.
type hosts struct {
	io.Closer

	count int
}

// needs says what a scenario needs of its rig.
type needs struct {
	// managers is the number of this provider's managers, args their additional arguments.
	managers int
	args     []string
	// nodes says that bootstraps set up API servers. Their addresses are of the loopback, so the manager is built for
	// virtual hosts.
	nodes bool
	// sites says that hosts fetch bundles, and that their nodes can be upgraded.
	sites bool
	// durable says that etcd waits for the disk.
	durable bool
}

// onRig returns a measurement that runs on a new rig.
func onRig(measure func(context.Context, *rig) error, n needs) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) (err error) {
		g, err := r.newRig(ctx, n)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.close()) }()
		return measure(ctx, g)
	}
}

// newRig starts a management cluster.
func (r *run) newRig(ctx context.Context, n needs) (_ *rig, err error) {
	g := &rig{run: r, nodes: n.nodes, sites: n.sites, gauges: measure.NewGauges()}
	g.cluster, err = embedded.Start(ctx, embedded.Options{
		Checkout: r.options.Checkout, Manager: r.options.Manager, Alone: true, OneVersion: true, Managers: n.managers, Diagnostics: true,
		ManagerArgs: n.args, Simulation: n.nodes, Durable: n.durable, Progress: r.options.Progress,
	})
	if err != nil {
		return nil, fmt.Errorf("starting a management cluster: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building a scheme: %w", err)
		}
	}
	if g.admin, err = client.NewWithWatch(g.cluster.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := g.removeAuditWebhook(ctx); err != nil {
		return nil, err
	}
	g.machines = &machines.Client{Admin: g.admin, Namespace: namespace, Cluster: g.cluster, Progress: r.progress}
	if g.api, err = measure.NewAPIServer(g.cluster.Config); err != nil {
		return nil, err
	}
	for _, name := range []string{namespace, bareNamespace} {
		if err := g.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if g.token, err = g.register(ctx, namespace); err != nil {
		return nil, err
	}
	return g, nil
}

// register creates an ElementalRegistration and returns its token.
func (g *rig) register(ctx context.Context, in string) (string, error) {
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "bench"}}
	registration.Spec.Token.MaxUses = 2 * fleet.MaxHosts
	// Strangers can only write where hosts are re-adopted.
	registration.Spec.Readoption = infrav1.ReadoptionPending
	if err := g.admin.Create(ctx, registration); err != nil {
		return "", fmt.Errorf("creating a registration: %w", err)
	}
	if err := g.until(ctx, "the registration's token", func(ctx context.Context) (bool, error) {
		err := g.admin.Get(ctx, client.ObjectKeyFromObject(registration), registration)
		return err == nil && registration.Status.TokenSecretRef != nil, err
	}); err != nil {
		return "", err
	}
	secret := &corev1.Secret{}
	if err := g.admin.Get(ctx, client.ObjectKey{Namespace: in, Name: registration.Status.TokenSecretRef.Name}, secret); err != nil {
		return "", fmt.Errorf("reading the registration's token: %w", err)
	}
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	if err != nil {
		return "", fmt.Errorf("reading the registration's token: %w", err)
	}
	return config.Token, nil
}

// gather adds hosts at rampRate and waits until all are connected.
func (g *rig) gather(ctx context.Context, count int) error {
	if err := g.addHosts(ctx, count, time.Duration(count)*time.Second/rampRate); err != nil {
		return err
	}
	return g.mustConnect(ctx)
}

// addHosts adds hosts, evenly over a duration. They run in another process: in this one, ten thousand TLS handshakes would
// delay the measurements.
func (g *rig) addHosts(ctx context.Context, count int, over time.Duration) error {
	settings := fleet.Settings{
		Count: count, Prefix: fmt.Sprintf("host-%d", len(g.fleets)), Seed: uint64(len(g.fleets)),
		Servers: []string{g.cluster.AgentURL}, TrustBundle: g.cluster.CABundle, Token: g.token,
	}
	role := roleHosts
	switch {
	case g.nodes:
		role, settings.ProbePeriod = roleNodes, nodes.ProbePeriod
	case g.sites:
		role, settings.BundleRate = roleSites, sites.Rate
	}
	f, err := remote.Start(ctx, g.options.role(role), settings, os.Stderr)
	if err != nil {
		return fmt.Errorf("making hosts: %w", err)
	}
	g.fleets = append(g.fleets, hosts{Closer: f, count: count})
	return f.Do(ctx, remote.PowerOn, over)
}

// hosts returns the number of hosts.
func (g *rig) hosts() int {
	n := 0
	for _, f := range g.fleets {
		n += f.count
	}
	return n
}

// closeFleets removes all hosts.
func (g *rig) closeFleets() error {
	var failures []error
	for _, f := range g.fleets {
		failures = append(failures, f.Close())
	}
	g.fleets = nil
	return errors.Join(failures...)
}

// close stops hosts and cluster.
func (g *rig) close() error { return errors.Join(g.closeFleets(), g.cluster.Stop()) }

// connected returns the number of hosts connected to the leader, or 0 while no manager answers.
func (g *rig) connected(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	most := 0.0
	for _, m := range g.cluster.Managers() {
		if n, err := g.gauges.Read(ctx, m.Metrics, connectedHosts); err == nil {
			most = max(most, n)
		}
	}
	return int(most)
}

// awaitConnected waits until all hosts and others are connected. It returns the number of connected hosts, also at the
// limit.
func (g *rig) awaitConnected(ctx context.Context, others int, limit time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	want, now, said := g.hosts()+others, 0, time.Now()
	err := g.until(ctx, "hosts to connect", func(ctx context.Context) (bool, error) {
		now = g.connected(ctx)
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			g.progress.Say("%d of %d hosts are connected", now, want)
		}
		return now >= want, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return now, nil
	}
	return now, err
}

// mustConnect waits until all hosts are connected.
func (g *rig) mustConnect(ctx context.Context) error {
	n, err := g.awaitConnected(ctx, 0, stepTimeout)
	if err == nil && n < g.hosts() {
		err = fmt.Errorf("only %d of %d hosts are connected after %s", n, g.hosts(), stepTimeout)
	}
	return err
}

// until polls look until it is done. The end of the cluster is an error.
func (g *rig) until(ctx context.Context, what string, look func(context.Context) (bool, error)) error {
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		done, err := look(ctx)
		if err == nil && done {
			return nil
		}
		if ctx.Err() == nil && err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-g.cluster.Done():
			return fmt.Errorf("waiting for %s: %w", what, g.cluster.Err())
		}
	}
}

// quiet waits until there were no writes for some seconds, because Events are written late, and returns the writes.
func (g *rig) quiet(ctx context.Context) (measure.Writes, error) {
	const quietFor = 3 * time.Second
	var last measure.Writes
	since := time.Now()
	err := g.until(ctx, "writes to end", func(ctx context.Context) (bool, error) {
		now, err := g.api.Writes(ctx)
		if err != nil {
			return false, err
		}
		if len(now.Since(last).Only(notLease)) > 0 {
			last, since = now, time.Now()
		}
		return time.Since(since) > quietFor, nil
	})
	return last, err
}

func notLease(w measure.Write) bool { return !w.Lease() }

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

const (
	// maxWrites bounds the writes for a Machine, from its claim until it is provisioned.
	maxWrites = 8
	soon      = 3 * time.Minute
)

// rig is the manager, as main starts it, with an API server that counts writes.
type rig struct {
	*controllertest.Fixture

	url, bundle string
	// gateway is the address of the gateway for users.
	gateway string
	api     *measure.APIServer
	agents  sync.WaitGroup
}

// TestFleet runs the whole manager with a real API server and real connections of agents.
func TestFleet(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	env := envtest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	polling, hangUp := context.WithCancel(t.Context())
	r := &rig{Fixture: controllertest.New(t, env)}
	var err error
	r.api, err = measure.NewAPIServer(env.Config)
	r.Expect(err).NotTo(HaveOccurred())
	ended := r.start(ctx, env)
	defer func() {
		// A manager that stops ends polls by force after some seconds, and its queues may block if
		// they have items then.
		hangUp()
		r.agents.Wait()
		r.Eventually(idle).WithTimeout(soon).Should(BeTrue())
		cancel()
		r.Expect(<-ended).To(Succeed())
	}()
	r.Create(&infrav1.ElementalRegistration{ObjectMeta: r.Meta("default")})
	registration := &infrav1.ElementalRegistration{ObjectMeta: r.Meta("default")}
	r.Eventually(func() bool {
		return r.Exists(registration) && registration.Status.Endpoint.CABundle != ""
	}).WithTimeout(soon).Should(BeTrue())
	r.bundle = registration.Status.Endpoint.CABundle
	r.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpoint.Host = "10.0.0.1" })

	t.Run("Writes", func(t *testing.T) { r.testWrites(polling, t) })
	t.Run("AtRest", func(t *testing.T) { r.testAtRest(polling, t) })
	t.Run("Enrolment", func(t *testing.T) { r.testEnrolment(t) })
	t.Run("LongEvents", func(t *testing.T) { r.testLongEvents(t) })
}

// start starts the manager with the permissions of its role. The channel receives its
// result.
func (r *rig) start(ctx context.Context, env *envtest.Environment) <-chan error {
	r.T.Helper()
	r.Expect(r.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: defaultNamespace}})).To(Succeed())
	listener, err := tcp.Listen(ctx, "127.0.0.1:0")
	r.Expect(err).NotTo(HaveOccurred())
	r.T.Cleanup(func() { _ = listener.Close() })
	r.url = "https://" + listener.Addr().String()

	r.T.Setenv("KUBECONFIG", r.kubeconfig(r.install(env, filepath.Join("config", "default"), nil)))
	o := newOptions()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.addFlags(fs)
	r.Expect(fs.Parse([]string{
		"--diagnostics-address=127.0.0.1:0", "--health-addr=0", "--webhook-port=0",
		"--agent-api-url=" + r.url, "--gateway-passthrough-address=127.0.0.1:0", "--gateway-proxy-address=127.0.0.1:0",
	})).To(Succeed())
	r.Expect(o.validate()).To(Succeed())
	o.shutdown = soon // on a busy machine too
	o.agentAPI.listener = listener
	mgr, err := newManager(ctx, o)
	r.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return ended
}

func (r *rig) kubeconfig(c *rest.Config) string {
	r.T.Helper()
	const name = "test"
	file := filepath.Join(r.T.TempDir(), "kubeconfig")
	r.Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)).To(Succeed())
	return file
}

// declare creates an agent and its declared host.
func (r *rig) declare(ctx context.Context, name string, labels map[string]string) (*agent, error) {
	a, err := newAgent(name, r.url, r.bundle)
	if err != nil {
		return nil, err
	}
	h, err := a.host(r.Namespace)
	if err != nil {
		return nil, err
	}
	h.Labels = labels
	if err := r.Admin.Create(ctx, h); err != nil {
		return nil, fmt.Errorf("creating host: %w", err)
	}
	return a, nil
}

// testWrites counts the writes for a Machine, from its claim until it is provisioned: the
// chosen host on the ElementalMachine, the claim, the conditions of both objects, the agent's
// progress and result, and the result on the ElementalMachine. The agent polls until polling
// ends: otherwise its host would be disconnected in the middle of another test.
func (r *rig) testWrites(polling context.Context, t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(polling, soon)
	defer cancel()
	a, err := r.declare(ctx, "counted", map[string]string{"for": "counting"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.start(ctx)).To(Succeed())
	host := &infrav1.ElementalHost{ObjectMeta: r.Meta("counted")}
	planned := make(chan protocol.Operation, 1)
	r.agents.Go(func() {
		a.poll(polling, func(op protocol.Operation) {
			select {
			case planned <- op:
			default: // nobody waits any more
			}
		})
	})
	g.Eventually(func() bool {
		return r.Exists(host) && meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.AvailableCondition)
	}).WithTimeout(soon).Should(BeTrue())
	owner, machine := r.Machine("c", "counted", func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "counted"}}
		m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"for": "counting"}}
	})
	before := r.settled(ctx, g)

	controllertest.Change(r.Fixture, owner, func(o *clusterv1.Machine) { o.Spec.Bootstrap.DataSecretName = new("data") })
	var op protocol.Operation
	g.Eventually(planned).WithTimeout(soon).Should(Receive(&op))
	g.Expect(op.Type).To(Equal(protocol.OperationBootstrap))
	g.Expect(a.report(ctx, op, protocol.StateRunning)).To(Succeed())
	g.Eventually(func() bool {
		r.Refresh(host)
		return host.Operation(infrav1.OperationBootstrap, op.ID) != nil
	}).WithTimeout(soon).Should(BeTrue(), "progress is written when it takes long")
	g.Expect(a.report(ctx, op, protocol.StateSucceeded)).To(Succeed())
	g.Eventually(func() bool {
		r.Refresh(machine)
		return meta.IsStatusConditionTrue(machine.Status.Conditions, infrav1.ReadyCondition)
	}).WithTimeout(soon).Should(BeTrue())
	cost := r.settled(ctx, g).Since(before).Only(ours)
	t.Logf("From claim to provisioned: %d writes: %s", cost.Total(), cost)
	g.Expect(cost.Total()).To(BeNumerically("<=", maxWrites), "%s", cost)
	g.Expect(machine.Spec.ProviderID).NotTo(BeEmpty())
}

// testAtRest observes a connected fleet; with -short, a small one. Half of its hosts are claimed,
// and so is the one of testWrites, some Machines wait, and every agent polls. There must be no
// write while the controllers look at everything again, nor for a minute after that; with -short,
// ten seconds.
func (r *rig) testAtRest(ctx context.Context, t *testing.T) {
	g := NewWithT(t)
	fleet, observed := 200, time.Minute
	if testing.Short() {
		fleet, observed = 40, 10*time.Second
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range fleet {
		group.Go(func() error {
			a, err := r.declare(groupCtx, fmt.Sprintf("host-%03d", i), nil)
			if err == nil {
				r.agents.Go(func() { a.run(ctx) })
			}
			return err
		})
	}
	g.Expect(group.Wait()).To(Succeed())
	for i := range fleet / 2 {
		r.Machine("c", fmt.Sprintf("machine-%03d", i))
	}
	for i := range 5 {
		r.Machine("c", fmt.Sprintf("waiting-%d", i), func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
			m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"is": "nowhere"}}
		})
	}
	g.Eventually(func() ([]int, error) { return r.census(ctx) }).WithTimeout(soon).WithPolling(time.Second).Should(Equal([]int{fleet + 1, fleet/2 + 1}))

	before := r.settled(ctx, g)
	own := r.look(ctx, g)
	hosts := r.hosts(ctx, g)
	more := r.settledFor(ctx, g, observed).Since(before).Since(own)
	g.Expect(more).To(BeEmpty(), "a fleet of %d hosts at rest: %s", fleet, changes(hosts, r.hosts(ctx, g)))
	total, err := r.census(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(total).To(Equal([]int{fleet + 1, fleet/2 + 1}), "all hosts stayed connected")
	t.Logf("%d connected hosts caused no write; %d before", fleet, before.Only(ours).Total())
}

// hosts returns the fleet's hosts by name.
func (r *rig) hosts(ctx context.Context, g *WithT) map[string]*infrav1.ElementalHost {
	list := &infrav1.ElementalHostList{}
	g.Expect(r.Admin.List(ctx, list, ctrlclient.InNamespace(r.Namespace))).To(Succeed())
	out := map[string]*infrav1.ElementalHost{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// changes returns the differences of the hosts that were written.
func changes(before, after map[string]*infrav1.ElementalHost) string {
	var out []string
	for name, is := range after {
		if was := before[name]; was == nil || was.ResourceVersion != is.ResourceVersion {
			out = append(out, cmp.Diff(was, is))
		}
	}
	return strings.Join(out, "\n")
}

// census returns the numbers of connected hosts and provisioned Machines.
func (r *rig) census(ctx context.Context) ([]int, error) {
	hosts, machines := &infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{}
	if err := r.Admin.List(ctx, hosts, ctrlclient.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	if err := r.Admin.List(ctx, machines, ctrlclient.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	connected, provisioned := 0, 0
	for i := range hosts.Items {
		if meta.IsStatusConditionTrue(hosts.Items[i].Status.Conditions, infrav1.ConnectedCondition) {
			connected++
		}
	}
	for i := range machines.Items {
		if ptr.Deref(machines.Items[i].Status.Initialization.Provisioned, false) {
			provisioned++
		}
	}
	return []int{connected, provisioned}, nil
}

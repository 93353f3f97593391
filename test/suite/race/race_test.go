package race

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	workers = 10
	// testTimeout is the timeout of the test on a busy machine.
	testTimeout = 10 * time.Minute
)

// fleetSize is the number of machines and of hosts.
func fleetSize() int {
	if testing.Short() {
		return 60
	}
	return 300
}

var env *envtest.Environment

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

func TestClaimsOfTwoManagers(t *testing.T) {
	// Idle connections of the clients that prepare the test stay open.
	ignore := goleak.IgnoreCurrent()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	f := controllertest.New(t, env)
	createObjects(ctx, f)
	watching, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	f.Expect(err).NotTo(HaveOccurred())
	watchCtx, stopWatch := context.WithCancel(ctx)
	r, err := watchClaims(watchCtx, watching, f.Namespace)
	f.Expect(err).NotTo(HaveOccurred())

	var n counts
	began := time.Now()
	stopFirst, stopSecond := startManager(ctx, f, &n), startManager(ctx, f, &n)
	fleetCtx, stopFleet := context.WithCancel(ctx)
	var agents sync.WaitGroup
	for range workers {
		agents.Go(func() { report(fleetCtx, f.Admin, r.claimed) })
	}
	agents.Go(func() { toggleConnections(fleetCtx, f.Admin, f.Namespace) })

	f.Eventually(r.countBound).WithContext(ctx).WithTimeout(testTimeout).Should(BeNumerically(">=", fleetSize()/2))
	t.Logf("Stopping a manager after %d claims, %s", r.countBound(), time.Since(began).Round(time.Millisecond))
	stopFirst()
	f.Eventually(func() (int, error) { return provisioned(ctx, f) }).WithContext(ctx).WithTimeout(testTimeout).
		WithPolling(200 * time.Millisecond).Should(Equal(fleetSize()))
	took := time.Since(began)
	stopFleet()
	agents.Wait()
	stopSecond()
	stopWatch()
	<-r.done

	violations, claims := r.results()
	f.Expect(violations).To(BeEmpty())
	expectPairs(ctx, f)
	t.Logf("Placed %d machines in %s: %d claims, %d injected conflicts, %d lost responses, %d stalled caches",
		fleetSize(), took.Round(time.Millisecond), claims, n.conflicts.Load(), n.lost.Load(), n.stalls.Load())
	f.Expect(n.conflicts.Load()).To(BeNumerically(">", fleetSize()/10))
	f.Expect(n.lost.Load()).To(BeNumerically(">", fleetSize()/20))
	f.Expect(n.stalls.Load()).NotTo(BeZero())
	f.Eventually(func() error { return goleak.Find(ignore) }).WithTimeout(time.Minute).Should(Succeed())
}

// createObjects creates a cluster with one host per machine.
func createObjects(ctx context.Context, f *controllertest.Fixture) {
	f.T.Helper()
	f.Cluster("c")
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range fleetSize() {
		group.Go(func() error { return makeHost(ctx, f, fmt.Sprintf("host-%03d", i)) })
		group.Go(func() error { return makeMachine(ctx, f.Admin, f.Namespace, fmt.Sprintf("machine-%03d", i)) })
	}
	f.Expect(group.Wait()).To(Succeed())
}

func makeHost(ctx context.Context, f *controllertest.Fixture, name string) error {
	h := controllertest.FreeHost(f.Namespace, name, f.Clock.Now())
	status := h.Status.DeepCopy()
	if err := f.Admin.Create(ctx, h); err != nil {
		return fmt.Errorf("creating host: %w", err)
	}
	h.Status = *status
	hoststatus.Update(h, metav1.Now())
	if err := f.Admin.Status().Update(ctx, h); err != nil {
		return fmt.Errorf("writing status of host: %w", err)
	}
	return nil
}

func makeMachine(ctx context.Context, c client.Client, namespace, name string) error {
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}
	}
	owner := &clusterv1.Machine{ObjectMeta: meta(), Spec: clusterv1.MachineSpec{
		ClusterName:       "c",
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new(name)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	if err := c.Create(ctx, owner); err != nil {
		return fmt.Errorf("creating Machine: %w", err)
	}
	m := &infrav1.ElementalMachine{ObjectMeta: meta()}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: owner.UID}}
	if err := c.Create(ctx, m); err != nil {
		return fmt.Errorf("creating ElementalMachine: %w", err)
	}
	return nil
}

// startManager starts a manager with its own stale cache, and returns a function that stops it.
func startManager(ctx context.Context, f *controllertest.Fixture, n *counts) (stop func()) {
	f.T.Helper()
	mgr, err := ctrl.NewManager(withStaleCache(env.Config, n), env.ManagerOptions())
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(index.Register(ctx, mgr.GetFieldIndexer())).To(Succeed())
	c := unreliable{mgr.GetClient(), n}
	options := controller.Options{MaxConcurrentReconciles: workers}
	recorder := &events.FakeRecorder{}
	f.Expect((&machine.Reconciler{
		Client: c, APIReader: mgr.GetAPIReader(), Recorder: recorder, Clock: clock.RealClock{}, Nominations: &placement.Nominations{},
	}).SetupWithManager(ctx, mgr, options)).To(Succeed())
	f.Expect((&host.Reconciler{Client: c, APIReader: mgr.GetAPIReader(), Recorder: recorder, Clock: clock.RealClock{}}).
		SetupWithManager(ctx, mgr, options)).To(Succeed())
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	return func() {
		cancel()
		f.Expect(<-ended).To(Succeed())
	}
}

func provisioned(ctx context.Context, f *controllertest.Fixture) (int, error) {
	machines := &infrav1.ElementalMachineList{}
	if err := f.Admin.List(ctx, machines, client.InNamespace(f.Namespace)); err != nil {
		return 0, fmt.Errorf("listing machines: %w", err)
	}
	count := 0
	for i := range machines.Items {
		if ptr.Deref(machines.Items[i].Status.Initialization.Provisioned, false) {
			count++
		}
	}
	return count, nil
}

// expectPairs checks that machines and hosts refer to each other one to one.
func expectPairs(ctx context.Context, f *controllertest.Fixture) {
	f.T.Helper()
	machines, hosts := &infrav1.ElementalMachineList{}, &infrav1.ElementalHostList{}
	f.Expect(f.Admin.List(ctx, machines, client.InNamespace(f.Namespace))).To(Succeed())
	f.Expect(f.Admin.List(ctx, hosts, client.InNamespace(f.Namespace))).To(Succeed())
	f.Expect(machines.Items).To(HaveLen(fleetSize()))
	f.Expect(hosts.Items).To(HaveLen(fleetSize()))
	claims := map[string]infrav1.HostClaim{}
	for i := range hosts.Items {
		f.Expect(hosts.Items[i].Spec.Claim).NotTo(BeNil(), hosts.Items[i].Name)
		claims[hosts.Items[i].Name] = *hosts.Items[i].Spec.Claim
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		f.Expect(m.Spec.HostRef).NotTo(BeNil(), m.Name)
		f.Expect(claims[m.Spec.HostRef.Name]).To(Equal(infrav1.HostClaim{
			ID: m.Spec.HostRef.ClaimID, ClusterName: "c", MachineName: m.Name, Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker,
		}))
		f.Expect(m.Spec.ProviderID).To(Equal("elemental://" + f.Namespace + "/" + m.Spec.HostRef.Name))
	}
}

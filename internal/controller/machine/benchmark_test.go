package machine_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

const fleetSpace = "fleet"

// bench is a reconciler of one cluster with a fleet of hosts in memory.
type bench struct {
	*testing.B

	memory     *controllertest.Memory
	reconciler *machine.Reconciler
	handler    handler.EventHandler
	machines   int
}

func newBench(b *testing.B) *bench {
	b.Helper()
	selectors, err := selector.NewCompiler()
	if err != nil {
		b.Fatal(err)
	}
	m := &bench{B: b, memory: controllertest.NewMemory(b, env.Scheme, cache.TransformStripManagedFields(), index.Register, machine.AddIndexes)}
	m.reconciler = &machine.Reconciler{
		Client: m.memory, APIReader: m.memory.Live(), Recorder: &events.FakeRecorder{}, Clock: clock.RealClock{}, Selectors: selectors,
	}
	machine.KeepFreeHosts(m.reconciler)
	m.handler = machine.HostHandler(m.reconciler)
	cluster := &clusterv1.Cluster{ObjectMeta: meta("c"), Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: "c"},
	}}
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	m.create(cluster)
	m.create(&infrav1.ElementalCluster{ObjectMeta: meta("c")})
	return m
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: fleetSpace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}
}

func (m *bench) create(o client.Object) {
	m.Helper()
	if err := m.memory.Create(m.Context(), o); err != nil {
		m.Fatal(err)
	}
	m.memory.Await(m, o)
}

// offer sends the reconciler the event of a new host.
func (m *bench) offer(q workqueue.TypedRateLimitingInterface[ctrl.Request], host *infrav1.ElementalHost) {
	m.handler.Create(m.Context(), event.CreateEvent{Object: host}, q)
}

// machine creates a Machine that may claim a host, and its ElementalMachine.
func (m *bench) machine(change ...func(*infrav1.ElementalMachine)) ctrl.Request {
	m.Helper()
	name := fmt.Sprintf("machine-%06d", m.machines)
	m.machines++
	owner := &clusterv1.Machine{ObjectMeta: meta(name), Spec: clusterv1.MachineSpec{
		ClusterName: "c", Bootstrap: clusterv1.Bootstrap{DataSecretName: new(name)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	m.create(owner)
	o := &infrav1.ElementalMachine{ObjectMeta: meta(name)}
	o.Finalizers = []string{infrav1.MachineFinalizer}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: owner.UID}}
	for _, f := range change {
		f(o)
	}
	m.create(o)
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

func newQueue() workqueue.TypedRateLimitingInterface[ctrl.Request] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
}

// fleet creates free hosts and sends the reconciler their events. Hosts with an odd number
// have one label value, the others another.
func (m *bench) fleet(n int) {
	m.Helper()
	m.memory.AddFleet(m, fleetSpace, n, func(i int, host *infrav1.ElementalHost) { host.Labels["kind"] = kinds[i%2] })
	q := newQueue()
	defer q.ShutDown()
	hosts := &infrav1.ElementalHostList{}
	if err := m.memory.List(m.Context(), hosts, client.InNamespace(fleetSpace)); err != nil {
		m.Fatal(err)
	}
	for i := range hosts.Items {
		m.offer(q, &hosts.Items[i])
	}
}

var kinds = [2]string{"small", "large"}

// BenchmarkClaim measures one claim, without the time of the API server: of any host, and
// of a host with certain labels. The result must not grow with the number of hosts.
func BenchmarkClaim(b *testing.B) {
	large := func(o *infrav1.ElementalMachine) {
		o.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"kind": "large"}}
	}
	for _, hosts := range []int{1000, 3000, 10_000} {
		for name, change := range map[string][]func(*infrav1.ElementalMachine){"any": nil, "labels": {large}} {
			b.Run(fmt.Sprintf("%s/hosts=%d", name, hosts), func(b *testing.B) {
				m := newBench(b)
				m.fleet(hosts)
				q := newQueue()
				defer q.ShutDown()
				b.ReportAllocs()
				for i := hosts; b.Loop(); i++ {
					b.StopTimer()
					request := m.machine(change...)
					b.StartTimer()
					if _, err := m.reconciler.Reconcile(context.Background(), request); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					m.replace(q, request, i)
					b.StartTimer()
				}
			})
		}
	}
}

// replace deletes the host that the machine claimed and creates another one.
func (m *bench) replace(q workqueue.TypedRateLimitingInterface[ctrl.Request], request ctrl.Request, i int) {
	m.Helper()
	o := &infrav1.ElementalMachine{}
	if err := m.memory.Live().Get(m.Context(), request.NamespacedName, o); err != nil {
		m.Fatal(err)
	}
	if o.Spec.HostRef == nil {
		m.Fatal("the machine has no host")
	}
	taken := &infrav1.ElementalHost{}
	if err := m.memory.Live().Get(m.Context(), client.ObjectKey{Namespace: fleetSpace, Name: o.Spec.HostRef.Name}, taken); err != nil {
		m.Fatal(err)
	}
	if err := m.memory.Delete(m.Context(), taken); err != nil {
		m.Fatal(err)
	}
	m.handler.Delete(m.Context(), event.DeleteEvent{Object: taken}, q)
	host := controllertest.FleetHost(m, fleetSpace, i)
	host.Labels["kind"] = taken.Labels["kind"]
	m.create(host)
	m.offer(q, host)
}

// BenchmarkHostOffered measures the handling of a host that becomes free, by the number of
// machines that wait for such hosts and for others.
func BenchmarkHostOffered(b *testing.B) {
	for _, waiting := range []int{0, 300, 3000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			m := newBench(b)
			for i := range waiting {
				request := m.machine(func(o *infrav1.ElementalMachine) {
					o.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"kind": kinds[i%2]}}
				})
				if _, err := m.reconciler.Reconcile(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
			before := controllertest.FleetHost(b, fleetSpace, 0)
			before.Labels["kind"] = "large"
			after := before.DeepCopy()
			before.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"}
			after.ResourceVersion = "1"
			q := newQueue()
			defer q.ShutDown()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				after.Name = fmt.Sprintf("host-%d", i%1000)
				before.Name = after.Name
				m.handler.Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			}
		})
	}
}

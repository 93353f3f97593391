package cluster_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// BenchmarkHostChanged measures the event handlers for a change of a host, with many
// clusters at rest: a report, a claim, and a claim of a host in a failure domain, which
// concerns all clusters.
func BenchmarkHostChanged(b *testing.B) {
	for _, clusters := range []int{20, 200, 2000} {
		memory := controllertest.NewMemory(b, env.Scheme, cache.TransformStripManagedFields(), index.Register)
		r := &cluster.Reconciler{Client: memory, APIReader: memory.Live(), Clock: clock.RealClock{}}
		for i := range clusters {
			c := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "fleet", Name: fmt.Sprintf("c-%04d", i), Labels: map[string]string{clusterv1.ClusterNameLabel: fmt.Sprintf("c-%04d", i)},
			}}
			c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: fmt.Sprintf("endpoint-%d", i)}
			c.Status.Conditions = []metav1.Condition{{Type: infrav1.ControlPlaneEndpointReadyCondition, Status: metav1.ConditionTrue}}
			c.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "a", ControlPlane: new(true)}}
			if err := memory.Create(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			memory.Await(b, c)
		}
		for name, change := range map[string]func(*infrav1.ElementalHost){
			"report": func(h *infrav1.ElementalHost) { h.Status.Agent.Version = "v2" },
			"claim": func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ID: "x", ClusterName: "c-0001", MachineName: "m", Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
			},
			"claim-in-domain": func(h *infrav1.ElementalHost) {
				h.Labels[infrav1.DefaultFailureDomainLabel] = "a"
				h.Spec.Claim = &infrav1.HostClaim{ID: "x", ClusterName: "c-0001", MachineName: "m", Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
			},
		} {
			b.Run(fmt.Sprintf("%s/clusters=%d", name, clusters), func(b *testing.B) {
				before := controllertest.FleetHost(b, "fleet", 1)
				after := controllertest.FleetHost(b, "fleet", 1)
				change(after)
				after.ResourceVersion = "2"
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
				defer q.ShutDown()
				b.ReportAllocs()
				for b.Loop() {
					for _, h := range []handler.EventHandler{r.EndpointHosts(), r.FailureDomainHosts()} {
						h.Update(b.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
					}
				}
			})
		}
	}
}

// BenchmarkFailureDomains measures a reconcile of a cluster at rest, with many hosts. None
// or each of the hosts is in one of ten failure domains.
func BenchmarkFailureDomains(b *testing.B) {
	for _, hosts := range []int{1000, 3000, 10000} {
		for name, label := range map[string]string{"none": "", "all": infrav1.DefaultFailureDomainLabel} {
			b.Run(fmt.Sprintf("in-domains=%s/hosts=%d", name, hosts), func(b *testing.B) {
				memory := controllertest.NewMemory(b, env.Scheme, cache.TransformStripManagedFields(), index.Register)
				r := &cluster.Reconciler{Client: memory, APIReader: memory.Live(), Clock: clock.RealClock{}}
				memory.AddFleet(b, "fleet", hosts, func(i int, host *infrav1.ElementalHost) {
					if label != "" {
						host.Labels[label] = fmt.Sprintf("zone-%d", i%10)
					}
				})
				request := externalCluster(b, memory, "fleet", "c")
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.Reconcile(b.Context(), request); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// externalCluster creates a cluster with an endpoint of the user.
func externalCluster(b *testing.B, memory *controllertest.Memory, namespace, name string) ctrl.Request {
	b.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: name}}
	endpoint := clusterv1.APIEndpoint{Host: "203.0.113.1", Port: 6443}
	owner := &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: endpoint,
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name},
	}}
	c := &infrav1.ElementalCluster{ObjectMeta: meta, Spec: infrav1.ElementalClusterSpec{
		ControlPlaneEndpoint: infrav1.ControlPlaneEndpoint{Host: endpoint.Host, Port: endpoint.Port},
	}}
	c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
	c.Finalizers = []string{infrav1.ClusterFinalizer}
	if err := memory.Create(b.Context(), owner); err != nil {
		b.Fatal(err)
	}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: owner.UID}}
	if err := memory.Create(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	memory.Await(b, owner)
	memory.Await(b, c)
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
}

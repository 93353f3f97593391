package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// counting counts reads of the cache.
func counting(hosts, others *atomic.Int64) func(*server.Options) {
	return func(o *server.Options) {
		o.Client = interceptor.NewClient(o.Client.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				for _, opt := range opts {
					if _, ofCluster := list.(*infrav1.ElementalHostList); ofCluster && strings.Contains(field(opt), "claim.clusterName") {
						hosts.Add(1)
					}
				}
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				switch o.(type) {
				case *clusterv1.Machine, *clusterv1.Cluster:
					others.Add(1)
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
	}
}

// field returns the index that a list uses.
func field(opt client.ListOption) string {
	by, ok := opt.(client.MatchingFields)
	if !ok {
		return ""
	}
	var names []string
	for name := range by {
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestEndpointMoveReachesHostsOfTheCluster(t *testing.T) {
	g := NewWithT(t)
	var lists, gets atomic.Int64
	h := start(t, counting(&lists, &gets))
	token := h.fleet()
	infra := h.infraCluster("c", "other")
	a, worker := h.member(token, "m1", infrav1.RoleControlPlane), h.member(token, "w1", infrav1.RoleWorker)
	stranger := h.enrolled(token)
	h.settledWrites() // earlier events have woken the polls
	lists.Store(0)
	gets.Store(0)
	p := a.plan("")
	g.Expect(p.Desired.Endpoint).To(HaveValue(Equal(protocol.Endpoint{Host: "10.0.0.1", Port: 6443, Probe: true})))
	g.Expect(lists.Load()).To(BeZero())
	g.Expect(gets.Load()).To(BeNumerically(">", 0), "of Cluster and ElementalCluster")
	g.Expect(worker.plan("").Desired.Endpoint).To(HaveValue(Equal(protocol.Endpoint{Host: "10.0.0.1", Port: 6443})))

	answers, workers := a.poll(t.Context(), p.Revision), worker.poll(t.Context(), worker.plan("").Revision)
	stranger.poll(t.Context(), stranger.plan("").Revision)
	h.polling(3)
	// A change that affects no plan wakes no poll.
	before := infra.DeepCopy()
	infra.Status.Endpoint = &infrav1.EndpointStatus{Moves: 1}
	h.must(h.admin.Status().Patch(t.Context(), infra, client.MergeFrom(before)))
	h.cachedSoon(infra)
	h.settledWrites()
	g.Expect(lists.Load()).To(BeZero())

	began := time.Now()
	h.patchCluster(infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint.Host = "10.0.0.2"
		c.Spec.ControlPlaneEndpointPolicy.HostRef.Name = a.name
		c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints = []infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443, HostName: "other"}}
	})
	chosen := infra.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt.UTC().Format(time.RFC3339)
	g.Expect(receive(t, answers).body).To(ContainSubstring(
		`"endpoint":{"host":"10.0.0.2","port":6443,"former":["10.0.0.1:6443"],"since":"` + chosen + `","probe":true,"publish":true}`))
	g.Expect(receive(t, workers).body).To(ContainSubstring(`"endpoint":{"host":"10.0.0.2","port":6443,"former":["10.0.0.1:6443"]}`))
	t.Logf("hosts had the new endpoint after %s", time.Since(began))
	g.Expect(lists.Load()).To(BeEquivalentTo(1), "one look-up of the hosts to wake")
	h.stillPolling(1) // the stranger
	g.Expect(h.settledWrites()).To(BeEmpty())

	// Without the ElementalCluster, hosts keep their files.
	answers = a.poll(t.Context(), a.plan("").Revision)
	h.polling(2)
	h.must(h.admin.Delete(t.Context(), infra))
	got := receive(t, answers).body
	g.Expect(got).NotTo(ContainSubstring(`"endpoint"`))
	g.Expect(got).NotTo(ContainSubstring(`"files"`))
}

func TestClusterOfAHost(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	g.Expect(a.plan("").Desired.Files).To(BeNil(), "the cluster is unknown")

	foreign := h.cluster("c")
	foreign.Spec.InfrastructureRef.Kind = "OtherCluster"
	h.must(h.admin.Update(t.Context(), foreign))
	h.cachedSoon(foreign)
	p := a.plan("")
	g.Expect(p.Desired.Files).To(And(BeEmpty(), Not(BeNil())), "the cluster belongs to another provider")
	g.Expect(p.Desired.Endpoint).To(BeNil())

	// The Cluster is of this provider after all, and its ElementalCluster comes later.
	answers := a.poll(t.Context(), p.Revision)
	h.polling(1)
	before := foreign.DeepCopy()
	foreign.Spec.InfrastructureRef.APIGroup, foreign.Spec.InfrastructureRef.Kind = infrav1.GroupVersion.Group, "ElementalCluster"
	h.must(h.admin.Patch(t.Context(), foreign, client.MergeFrom(before)))
	receive(t, answers)
	g.Expect(a.plan("").Desired.Files).To(BeNil(), "the cluster is unknown again")
	infra := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "other", ChosenAt: metav1.NewTime(h.clock.Now())}
	h.must(h.admin.Create(t.Context(), infra))
	h.cachedSoon(infra)
	g.Expect(a.plan("").Desired.Endpoint).To(BeNil(), "the Cluster does not own it yet")
	answers = a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)
	h.patchCluster(infra, func(c *infrav1.ElementalCluster) { c.OwnerReferences = ownedBy(foreign) })
	g.Expect(receive(t, answers).body).To(ContainSubstring("10.0.0.1"))
}

func ownedBy(c *clusterv1.Cluster) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID}}
}

// An ElementalCluster that claims to belong to a Cluster decides nothing about the Cluster's
// hosts, whether the Cluster's own ElementalCluster exists or not.
func TestThreat49_ImpostorOfAnElementalCluster(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	cluster := h.cluster("c")
	impostor := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: h.namespace, Name: "a", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}, OwnerReferences: ownedBy(cluster),
	}}
	vip(impostor)
	impostor.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	impostor.Spec.ControlPlaneEndpointPolicy.VIP.Image = "example.com/rootkit:v1"
	impostor.Spec.ControlPlaneEndpointPolicy.VIP.Interface = "eth0"
	h.must(h.admin.Create(t.Context(), impostor))
	h.cachedSoon(impostor)
	desired := a.plan("").Desired
	g.Expect(desired.Endpoint).To(BeNil())
	g.Expect(desired.Files).To(BeNil(), "the hosts keep the files that they have")

	own := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "c"}}
	own.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.2", Port: 6443}
	own.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "other", ChosenAt: metav1.NewTime(h.clock.Now())}
	h.must(h.admin.Create(t.Context(), own))
	h.cachedSoon(own)
	g.Expect(a.plan("").Desired.Endpoint).To(BeNil(), "the Cluster does not own the object that it names")
	h.patchCluster(own, func(c *infrav1.ElementalCluster) { c.OwnerReferences = ownedBy(cluster) })
	h.cachedSoon(own)
	g.Expect(a.plan("").Desired.Endpoint).To(HaveValue(HaveField("Host", "10.0.0.2")))
}

// The plan of the initial control-plane host changes when another host can take the
// virtual IP.
func TestPlanOfInitialHostDependsOnOtherHosts(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	infra := h.infraCluster("c", "", vip)
	unchecked := infra.DeepCopy()
	infra.Status.VirtualIP = infra.Spec.ControlPlaneEndpoint.Host
	h.must(h.admin.Status().Patch(t.Context(), infra, client.MergeFrom(unchecked)))
	h.cachedSoon(infra)
	able := enrolRequest()
	able.Hello.Capabilities = append(able.Hello.Capabilities, protocol.CapabilityFiles)
	enrolled := func() *agent {
		a := h.agent()
		g.Expect(a.enrolAs(token, able).status).To(Equal(http.StatusOK))
		return a
	}
	first, second := enrolled(), enrolled()
	first.bind("m1", infrav1.RoleInitialControlPlane)
	p := first.plan("")
	g.Expect(p.Operation).To(BeNil(), "the Machine does not exist, so its version is unknown")
	g.Expect(p.Desired.Files).To(BeNil())

	answers := first.poll(t.Context(), p.Revision)
	h.polling(1)
	machine := h.chain(first.name, "m1").machine
	machine.Spec.Version = "v1.28.1"
	h.must(h.admin.Create(t.Context(), &machine))
	receive(t, answers)
	p = first.plan("")
	g.Expect(p.Operation).NotTo(BeNil())
	g.Expect(p.Desired.Files[0].Content).To(ContainSubstring("/etc/kubernetes/admin.conf"))
	before := machine.DeepCopy()
	machine.Spec.Version = "v1.36.3"
	h.must(h.admin.Patch(t.Context(), &machine, client.MergeFrom(before)))
	h.cachedSoon(&machine)
	p = first.plan("")
	g.Expect(p.Desired.Files[0].Content).To(ContainSubstring("super-admin.conf"))

	answers = first.poll(t.Context(), p.Revision)
	h.polling(1)
	second.bind("m2", infrav1.RoleControlPlane)
	h.stillPolling(1)
	g.Expect(second.reportOperation(protocol.OperationBootstrap, "claim-m2", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	got := receive(t, answers)
	g.Expect(got.body).To(ContainSubstring("/etc/kubernetes/admin.conf"))
	g.Expect(got.body).NotTo(ContainSubstring("super-admin.conf"))

	p = first.plan("")
	answers = first.poll(t.Context(), p.Revision)
	h.polling(1)
	h.must(h.admin.Delete(t.Context(), h.host(second.name)))
	g.Expect(receive(t, answers).body).To(ContainSubstring("super-admin.conf"), "no other host can take the virtual IP")
}

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

// counting counts what the API asks its cache for.
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

// field is what a list is selected by.
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

func TestMoveReachesTheClustersHosts(t *testing.T) {
	g := NewWithT(t)
	var lists, gets atomic.Int64
	h := start(t, counting(&lists, &gets))
	token := h.fleet()
	infra := h.infraCluster("c", "other")
	a, worker := h.member(token, "m1", infrav1.RoleControlPlane), h.member(token, "w1", infrav1.RoleWorker)
	stranger := h.enrolled(token)
	h.settle() // what came so far has woken whom it concerns
	lists.Store(0)
	p := a.plan("")
	g.Expect(p.Desired.Endpoint).To(HaveValue(Equal(protocol.Endpoint{Host: "10.0.0.1", Port: 6443, Probe: true})))
	g.Expect(lists.Load()+gets.Load()).To(BeZero(), "a plan of a cluster of type Host takes the ElementalCluster alone")
	g.Expect(worker.plan("").Desired.Endpoint).To(HaveValue(Equal(protocol.Endpoint{Host: "10.0.0.1", Port: 6443})))

	answers, workers := a.poll(t.Context(), p.Revision), worker.poll(t.Context(), worker.plan("").Revision)
	strangers := stranger.poll(t.Context(), stranger.plan("").Revision)
	h.polling(3)
	// What concerns nobody's plan wakes nobody.
	before := infra.DeepCopy()
	infra.Status.Endpoint = &infrav1.EndpointStatus{Moves: 1}
	h.must(h.admin.Status().Patch(t.Context(), infra, client.MergeFrom(before)))
	h.cachedSoon(infra)
	h.settle()
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
	g.Expect(lists.Load()).To(BeEquivalentTo(1), "one look for those to wake")
	g.Consistently(strangers, 50*time.Millisecond).ShouldNot(Receive())
	g.Expect(h.settle()).To(BeEmpty())

	// While the ElementalCluster is gone nothing is taken away from hosts.
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
	g.Expect(a.plan("").Desired.Files).To(BeNil(), "the cluster is not known")

	foreign := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "c"}}
	foreign.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "OtherCluster", Name: "c"}
	h.must(h.admin.Create(t.Context(), foreign))
	h.cachedSoon(foreign)
	p := a.plan("")
	g.Expect(p.Desired.Files).To(And(BeEmpty(), Not(BeNil())), "it is another provider's")
	g.Expect(p.Desired.Endpoint).To(BeNil())

	// A copy that kept the label is not the Cluster's.
	h.infraCluster("a-copy", "other", func(c *infrav1.ElementalCluster) {
		c.Labels[clusterv1.ClusterNameLabel], c.Spec.ControlPlaneEndpoint.Host = "c", "10.0.0.66"
	})
	g.Expect(a.plan("").Desired.Endpoint.Host).To(Equal("10.0.0.66"))
	h.infraCluster("c", "other", func(c *infrav1.ElementalCluster) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: foreign.UID}}
	})
	g.Expect(a.plan("").Desired.Endpoint.Host).To(Equal("10.0.0.1"))
}

// The first control-plane host is told when another can take the address.
func TestVirtualAddress(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", vip)
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
	g.Expect(p.Operation).To(BeNil(), "the version of a Machine that is not there is not known")
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
	g.Consistently(answers, 50*time.Millisecond).ShouldNot(Receive())
	g.Expect(second.reportOperation(protocol.OperationBootstrap, "claim-m2", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	got := receive(t, answers)
	g.Expect(got.body).To(ContainSubstring("/etc/kubernetes/admin.conf"))
	g.Expect(got.body).NotTo(ContainSubstring("super-admin.conf"))

	p = first.plan("")
	answers = first.poll(t.Context(), p.Revision)
	h.polling(1)
	h.must(h.admin.Delete(t.Context(), h.host(second.name)))
	g.Expect(receive(t, answers).body).To(ContainSubstring("super-admin.conf"), "there is none any more")
}

package server_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// cluster creates a Cluster whose ElementalCluster has the same name, unless it exists, and
// waits until it is in the cache.
func (h *harness) cluster(name string) *clusterv1.Cluster {
	h.tb.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: name}
	err := h.admin.Create(h.tb.Context(), c)
	if apierrors.IsAlreadyExists(err) {
		err = h.admin.Get(h.tb.Context(), client.ObjectKeyFromObject(c), c)
	}
	h.must(err)
	h.cachedSoon(c)
	return c
}

// pause pauses or resumes the Cluster as `clusterctl move` does.
func (h *harness) pause(name string, paused bool) {
	h.tb.Helper()
	c := h.cluster(name)
	before := c.DeepCopy()
	c.Spec.Paused = nil
	if paused {
		c.Spec.Paused = new(true)
	}
	h.must(h.admin.Patch(h.tb.Context(), c, client.MergeFrom(before)))
	h.cachedSoon(c)
}

// A host of a paused cluster gets no new operation. A pause takes back one that the host
// has not begun, and its end gives it again, to open polls too.
func TestPauseReachesHostsOfTheCluster(t *testing.T) {
	for name, pause := range map[string]func(h *harness, host string, paused bool){
		"the Cluster": func(h *harness, _ string, paused bool) { h.pause("c", paused) },
		"the host": func(h *harness, host string, paused bool) {
			h.cachedSoon(h.patch(host, func(host *infrav1.ElementalHost) { setPaused(host, paused) }))
		},
		"the ElementalMachine": func(h *harness, _ string, paused bool) {
			m := &infrav1.ElementalMachine{}
			h.must(h.admin.Get(h.tb.Context(), client.ObjectKey{Namespace: h.namespace, Name: "m1"}, m))
			before := m.DeepCopy()
			setPaused(m, paused)
			h.must(h.admin.Patch(h.tb.Context(), m, client.MergeFrom(before)))
			h.cachedSoon(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := start(t)
			a := h.ready()
			h.chain(a.name, "m1").create(h)
			expect := func(after string, want *protocol.Operation) string {
				t.Helper()
				p := a.plan("")
				g.Expect(p.Revision).NotTo(Equal(after))
				g.Expect(p.Operation).To(Equal(want))
				return p.Revision
			}
			bootstrap := &protocol.Operation{Type: protocol.OperationBootstrap, ID: "claim-m1", ClusterName: "c", MachineName: "m1"}
			reset := &protocol.Operation{Type: protocol.OperationReset, ID: "claim-m1", ClusterName: "c", MachineName: "m1"}
			revision := expect("", bootstrap)

			answers := a.poll(t.Context(), revision)
			h.polling(1)
			pause(h, a.name, true)
			g.Expect(receive(t, answers).body).NotTo(ContainSubstring(`"operation"`))
			revision = expect(revision, nil)
			g.Expect(a.bootstrap("claim-m1").status).To(Equal(http.StatusNotFound), "a host that did not know of the pause gets no data")

			answers = a.poll(t.Context(), revision)
			h.polling(1)
			pause(h, a.name, false)
			g.Expect(receive(t, answers).body).To(ContainSubstring(`"type":"Bootstrap","id":"claim-m1"`))

			// A bootstrap that has begun goes on.
			a.begun(protocol.OperationBootstrap)
			pause(h, a.name, true)
			revision = expect("", bootstrap)
			g.Expect(a.bootstrap("claim-m1").status).To(Equal(http.StatusOK))
			g.Expect(a.reportOperation(protocol.OperationBootstrap, "claim-m1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))

			// A release waits for the end of the pause.
			h.cachedSoon(h.patch(a.name, releasing))
			revision = expect(revision, nil)
			answers = a.poll(t.Context(), revision)
			h.polling(1)
			pause(h, a.name, false)
			g.Expect(receive(t, answers).body).To(ContainSubstring(`"type":"Reset","id":"claim-m1"`))
			a.begun(protocol.OperationReset)
			pause(h, a.name, true)
			expect("", reset)
		})
	}
}

// begun reports that the operation runs, until the host's status says so.
func (a *agent) begun(kind protocol.OperationType) {
	a.h.tb.Helper()
	if got := a.reportOperation(kind, "claim-m1", protocol.StateRunning); got.status != http.StatusNoContent {
		a.h.tb.Fatalf("reporting progress: %d %s", got.status, got.body)
	}
	a.h.step(10 * time.Second) // the first progress of an operation is written later
	NewWithT(a.h.tb).Eventually(func() *infrav1.HostOperation {
		return a.h.host(a.name).Operation(infrav1.OperationType(kind), "claim-m1")
	}, eventually, often).ShouldNot(BeNil())
	a.h.cachedSoon(a.h.host(a.name))
}

func setPaused(o client.Object, paused bool) {
	annotations := map[string]string{}
	if paused {
		annotations[clusterv1.PausedAnnotation] = ""
	}
	o.SetAnnotations(annotations)
}

// A bound host waits for its Cluster, which a move or a restore may create later. A host
// that returns long after its Cluster was deleted is reset.
func TestHostsWithoutACluster(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.chain(a.name, "m1").create(h)
	h.must(h.admin.Delete(t.Context(), h.cluster("c")))
	g.Eventually(func() bool {
		err := h.cached.Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: "c"}, &clusterv1.Cluster{})
		return apierrors.IsNotFound(err)
	}, eventually, often).Should(BeTrue())
	p := a.plan("")
	g.Expect(p.Operation).To(BeNil())
	answers := a.poll(t.Context(), p.Revision)
	h.polling(1)
	h.cluster("c")
	g.Expect(receive(t, answers).body).To(ContainSubstring(`"type":"Bootstrap"`))

	h.must(h.admin.Delete(t.Context(), h.cluster("c")))
	h.cachedSoon(h.patch(a.name, releasing))
	g.Expect(a.plan("").Operation).To(HaveField("Type", protocol.OperationReset))
}

// At the end of a move the source deletes the Cluster and then its hosts, whose annotations
// it has removed. No host begins a reset in between.
func TestSourceOfAMoveResetsNothing(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.chain(a.name, "m1").create(h)
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) {
		releasing(host)
		host.Annotations = map[string]string{infrav1.PreventResetAnnotation: "evidence"}
	}))
	h.pause("c", true)
	answers := a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)
	h.must(h.admin.Delete(t.Context(), h.cluster("c")))
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) {
		host.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	}))
	g.Expect(a.plan("").Operation).To(BeNil())
	h.must(h.admin.Delete(t.Context(), h.host(a.name)))
	got := receive(t, answers)
	g.Expect(got.status).To(Equal(http.StatusUnauthorized), got.body)
}

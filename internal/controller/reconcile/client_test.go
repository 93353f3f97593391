package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// newClient returns a client for the objects, and the number of its patches.
func newClient(g *WithT, objects ...client.Object) (client.WithWatch, *int) {
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	patches := 0
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&infrav1.ElementalHost{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				patches++
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				patches++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build(), &patches
}

func newHost(name string) *infrav1.ElementalHost {
	return &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func statusOf(h *infrav1.ElementalHost) *infrav1.ElementalHostStatus { return &h.Status }

func TestPatchStatusWritesOnlyChanges(t *testing.T) {
	g := NewWithT(t)
	c, patches := newClient(g, newHost("h"))
	host := newHost("h")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())

	before := host.Status.DeepCopy()
	written, err := reconcile.PatchStatus(t.Context(), c, host, statusOf, before)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(written).To(BeFalse())
	g.Expect(*patches).To(BeZero(), "an unchanged status must not be written")

	host.Status.Agent = &infrav1.HostAgent{Version: "v1.0.0"}
	inMemory := host.DeepCopy()
	written, err = reconcile.PatchStatus(t.Context(), c, host, statusOf, before)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(written).To(BeTrue())
	g.Expect(*patches).To(Equal(1))
	g.Expect(host).To(Equal(inMemory), "the object in memory must stay unchanged")

	stored := newHost("h")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), stored)).To(Succeed())
	g.Expect(stored.Status.Agent).To(Equal(host.Status.Agent))

	host.Status.Agent.Version = "v2.0.0"
	written, err = reconcile.PatchStatus(t.Context(), c, host, statusOf, before)
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "host has an old resourceVersion: %v", err)
	g.Expect(written).To(BeFalse())
}

func TestPatchStatusIgnoresMissingObjects(t *testing.T) {
	g := NewWithT(t)
	c, _ := newClient(g)
	host := newHost("h")
	host.ResourceVersion = "1"
	host.Status.Agent = &infrav1.HostAgent{Version: "v1.0.0"}
	written, err := reconcile.PatchStatus(t.Context(), c, host, statusOf, &infrav1.ElementalHostStatus{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(written).To(BeFalse())
}

func TestPatchSpec(t *testing.T) {
	g := NewWithT(t)
	c, _ := newClient(g, newHost("h"))
	host := newHost("h")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
	stale := host.DeepCopy()
	cordon := func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }

	host.Status.Agent = &infrav1.HostAgent{Version: "v1.0.0"}
	g.Expect(reconcile.PatchSpec(t.Context(), c, host, statusOf, "cordoning host", cordon)).To(Succeed())
	g.Expect(host.Spec.Cordon).NotTo(BeNil())
	g.Expect(host.Status.Agent).NotTo(BeNil(), "the status in memory must be kept")
	g.Expect(host.ResourceVersion).NotTo(Equal(stale.ResourceVersion))

	before := stale.DeepCopy()
	err := reconcile.PatchSpec(t.Context(), c, stale, statusOf, "cordoning host", cordon)
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(HavePrefix("cordoning host: ")))
	g.Expect(stale).To(Equal(before), "after an error the object must be as before")
}

func TestSetConditions(t *testing.T) {
	g := NewWithT(t)
	first := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	second := first.Add(time.Hour)
	var list []metav1.Condition
	reconcile.SetConditions(&list, 1, first,
		metav1.Condition{Type: "A", Status: metav1.ConditionTrue, Reason: "R"},
		metav1.Condition{Type: "B", Status: metav1.ConditionTrue, Reason: "R"})
	reconcile.SetConditions(&list, 2, second,
		metav1.Condition{Type: "A", Status: metav1.ConditionTrue, Reason: "S"},
		metav1.Condition{Type: "B", Status: metav1.ConditionFalse, Reason: "R"})
	g.Expect(list).To(HaveLen(2))
	a, b := meta.FindStatusCondition(list, "A"), meta.FindStatusCondition(list, "B")
	g.Expect(a.LastTransitionTime.Time).To(Equal(first), "the status of A did not change")
	g.Expect(b.LastTransitionTime.Time).To(Equal(second))
	g.Expect([]int64{a.ObservedGeneration, b.ObservedGeneration}).To(Equal([]int64{2, 2}))
	g.Expect(a.Reason).To(Equal("S"))
}

func TestGet(t *testing.T) {
	g := NewWithT(t)
	c, _ := newClient(g, newHost("h"))
	get := func(name string) *infrav1.ElementalHost {
		host, err := reconcile.Get(t.Context(), c, "ns", name, &infrav1.ElementalHost{})
		g.Expect(err).NotTo(HaveOccurred())
		return host
	}
	g.Expect(get("h")).To(HaveField("Name", "h"))
	g.Expect(get("missing")).To(BeNil())
	g.Expect(get("")).To(BeNil())

	broken := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no connection")
		},
	})
	_, err := reconcile.Get(t.Context(), broken, "ns", "", &infrav1.ElementalHost{})
	g.Expect(err).NotTo(HaveOccurred(), "a blank name must not be read")
	_, err = reconcile.Get(t.Context(), broken, "ns", "h", &infrav1.ElementalHost{})
	g.Expect(err).To(MatchError("no connection"))
}

func TestListHosts(t *testing.T) {
	g := NewWithT(t)
	watched, elsewhere := newHost("watched"), newHost("elsewhere")
	watched.Labels = map[string]string{clusterv1.WatchLabel: "edge", "rack": "r1"}
	elsewhere.Namespace = "other"
	c, _ := newClient(g, watched, newHost("unlabelled"), elsewhere)
	list := func(filter string, options ...client.ListOption) []string {
		hosts, err := reconcile.ListHosts(t.Context(), c, "ns", filter, options...)
		g.Expect(err).NotTo(HaveOccurred())
		names := make([]string, len(hosts))
		for i, h := range hosts {
			names[i] = h.Name
		}
		return names
	}
	g.Expect(list("")).To(ConsistOf("watched", "unlabelled"))
	g.Expect(list("edge")).To(ConsistOf("watched"))
	g.Expect(list("lab")).To(BeEmpty())
	g.Expect(list("", client.MatchingLabels{"rack": "r1"})).To(ConsistOf("watched"))
}

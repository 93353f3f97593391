package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// A cluster that seeks a host for its endpoint looks at all of them: not whenever one
// says something, and once for thousands that come.
func TestWhatWakesAClusterThatSeeksAHost(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}})
	f.settle()
	f.expectEndpoint(no, infrav1.NoHostReason, "no ElementalHosts")
	host := func(version string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
		h.ResourceVersion = version
		for _, change := range changes {
			change(h)
		}
		return h
	}
	away := func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }
	dirty := func(h *infrav1.ElementalHost) { h.Status.Cleanliness = nil }
	other := claimed("other", infrav1.ClaimBound, infrav1.RoleWorker)
	for name, tc := range map[string]struct {
		was, is []func(*infrav1.ElementalHost)
		soon    bool
	}{
		"let in":          {was: []func(*infrav1.ElementalHost){pending}, soon: true},
		"connected":       {was: []func(*infrav1.ElementalHost){away}, soon: true},
		"clean":           {was: []func(*infrav1.ElementalHost){dirty}, soon: true},
		"freed":           {was: []func(*infrav1.ElementalHost){other}, soon: true},
		"unlocked":        {was: []func(*infrav1.ElementalHost){locked}, soon: true},
		"unfenced":        {was: []func(*infrav1.ElementalHost){fenced}, soon: true},
		"labelled":        {is: []func(*infrav1.ElementalHost){labelled("tier", "gold")}, soon: true},
		"its address":     {is: []func(*infrav1.ElementalHost){having("10.0.0.9")}, soon: true},
		"its interfaces":  {is: []func(*infrav1.ElementalHost){nic("eth0", "10.0.0.9/24")}, soon: true},
		"why it is unfit": {was: []func(*infrav1.ElementalHost){away}, is: []func(*infrav1.ElementalHost){dirty}, soon: true},
		"claimed":         {is: []func(*infrav1.ElementalHost){other}},
		"its agent":       {is: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Status.Agent = &infrav1.HostAgent{BootID: "2"} }}},
		"its operations": {is: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
			controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "x", State: infrav1.OperationRunning})
		}}},
		"an annotation": {is: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{"a": "b"} }}},
	} {
		t.Run(name, func(t *testing.T) {
			q, want := &queue{}, queue{}
			if tc.soon {
				want.soon = []ctrl.Request{f.request()}
			}
			cluster.HostHandler(f.reconciler).Update(f.Ctx, event.UpdateEvent{ObjectOld: host("1", tc.was...), ObjectNew: host("2", tc.is...)}, q)
			NewWithT(t).Expect(*q).To(Equal(want))
		})
	}
	t.Run("new", func(t *testing.T) {
		q := &queue{}
		cluster.HostHandler(f.reconciler).Create(f.Ctx, event.CreateEvent{Object: host("1", pending)}, q)
		NewWithT(t).Expect(*q).To(Equal(queue{soon: []ctrl.Request{f.request()}}))
	})
}

// Where the hosts of hundreds of sites come at a time, each with a cluster that seeks its
// own, each cluster looks for those of its site.
func TestHostsOfAnotherKindWakeAClusterThatSeeksLater(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}, Expression: "host.inventory.cpu.cores > 8"})
	f.settle()
	f.reconcile()
	f.expectEndpoint(no, infrav1.NoHostReason, "no ElementalHosts")
	gold := labelled("tier", "gold")
	large := func(h *infrav1.ElementalHost) {
		h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: 16}}
	}
	for name, tc := range map[string]struct {
		was, is []func(*infrav1.ElementalHost)
		soon    bool
	}{
		"of another kind":       {is: []func(*infrav1.ElementalHost){large}},
		"with less than enough": {is: []func(*infrav1.ElementalHost){gold}},
		"of its kind":           {is: []func(*infrav1.ElementalHost){gold, large}, soon: true},
		"no more of its kind":   {was: []func(*infrav1.ElementalHost){gold, large}, soon: true},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now()), controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
			pending(was)
			is.ResourceVersion = "2"
			for _, change := range tc.was {
				change(was)
			}
			for _, change := range tc.is {
				change(is)
			}
			for who, r := range map[string]*cluster.Reconciler{"": f.reconciler, "after a start, all are looked at": f.fresh()} {
				q, want := &queue{}, queue{soon: []ctrl.Request{f.request()}}
				if who == "" && !tc.soon {
					want = queue{later: want.soon}
				}
				cluster.HostHandler(r).Update(f.Ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: is}, q)
				NewWithT(t).Expect(*q).To(Equal(want), who)
			}
		})
	}
}

// The host that it has chosen is another matter.
func TestChosenHostWakesItsClusterAtOnce(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h", ChosenAt: metav1.Now()}
		c.Spec.ControlPlaneEndpoint.Host = "10.0.0.1"
	})
	h := f.host("h", "10.0.0.1")
	after := h.DeepCopy()
	after.ResourceVersion = "later"
	f.Expect(cluster.Woken(f.reconciler, event.UpdateEvent{ObjectOld: h, ObjectNew: after})).To(ConsistOf(f.request()))
}

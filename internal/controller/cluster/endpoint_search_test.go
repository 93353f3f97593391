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

// A cluster that searches a host for its endpoint lists all hosts. So only relevant changes
// enqueue it, with a delay that collects the changes of thousands of hosts.
func TestChangesThatEnqueueASearchingCluster(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}})
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.NoHostReason, "no ElementalHosts")
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
		before, after []func(*infrav1.ElementalHost)
		soon          bool
	}{
		"approved":       {before: []func(*infrav1.ElementalHost){pending}, soon: true},
		"connected":      {before: []func(*infrav1.ElementalHost){away}, soon: true},
		"clean":          {before: []func(*infrav1.ElementalHost){dirty}, soon: true},
		"freed":          {before: []func(*infrav1.ElementalHost){other}, soon: true},
		"unlocked":       {before: []func(*infrav1.ElementalHost){locked}, soon: true},
		"unfenced":       {before: []func(*infrav1.ElementalHost){fenced}, soon: true},
		"labelled":       {after: []func(*infrav1.ElementalHost){labelled("tier", "gold")}, soon: true},
		"its address":    {after: []func(*infrav1.ElementalHost){having("10.0.0.9")}, soon: true},
		"its interfaces": {after: []func(*infrav1.ElementalHost){nic("eth0", "10.0.0.9/24")}, soon: true},
		"other reason":   {before: []func(*infrav1.ElementalHost){away}, after: []func(*infrav1.ElementalHost){dirty}, soon: true},
		"its clock": {
			before: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Status.Agent = &infrav1.HostAgent{ClockSkewSeconds: 600} }}, soon: true,
		},
		"claimed":   {after: []func(*infrav1.ElementalHost){other}},
		"its agent": {after: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Status.Agent = &infrav1.HostAgent{BootID: "2"} }}},
		"its operations": {after: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
			controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "x", State: infrav1.OperationRunning})
		}}},
		"an annotation": {after: []func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{"a": "b"} }}},
	} {
		t.Run(name, func(t *testing.T) {
			q, want := &queue{}, queue{}
			if tc.soon {
				want.soon = []ctrl.Request{f.request()}
			}
			f.reconciler.EndpointHosts().Update(f.Ctx, event.UpdateEvent{ObjectOld: host("1", tc.before...), ObjectNew: host("2", tc.after...)}, q)
			NewWithT(t).Expect(*q).To(Equal(want))
		})
	}
	t.Run("new", func(t *testing.T) {
		q := &queue{}
		f.reconciler.EndpointHosts().Create(f.Ctx, event.CreateEvent{Object: host("1", pending)}, q)
		NewWithT(t).Expect(*q).To(Equal(queue{soon: []ctrl.Request{f.request()}}))
	})
}

// Hosts of hundreds of sites may enrol at the same time. Hosts that don't match a cluster's
// constraints enqueue it with a longer delay.
func TestUnsuitableHostsEnqueueASearchingClusterLater(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}, Expression: "host.inventory.cpu.cores > 8"})
	f.reconcileUntilStable()
	f.reconcile()
	f.expectCondition(no, infrav1.NoHostReason, "no ElementalHosts")
	gold := labelled("tier", "gold")
	approved := func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalApproved }
	large := func(h *infrav1.ElementalHost) {
		h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: 16}}
	}
	for name, tc := range map[string]struct {
		before, after []func(*infrav1.ElementalHost)
		soon          bool
	}{
		"other labels":       {after: []func(*infrav1.ElementalHost){large}},
		"too few cores":      {after: []func(*infrav1.ElementalHost){gold}},
		"matching":           {after: []func(*infrav1.ElementalHost){gold, large}, soon: true},
		"no longer matching": {before: []func(*infrav1.ElementalHost){gold, large, approved}, soon: true},
		"matched as pending": {before: []func(*infrav1.ElementalHost){gold, large}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now()), controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
			pending(before)
			after.ResourceVersion = "2"
			for _, change := range tc.before {
				change(before)
			}
			for _, change := range tc.after {
				change(after)
			}
			for who, r := range map[string]*cluster.Reconciler{"": f.reconciler, "after a restart every host counts": f.newReconciler()} {
				q, want := &queue{}, queue{soon: []ctrl.Request{f.request()}}
				if who == "" && !tc.soon {
					want = queue{later: want.soon}
				}
				r.EndpointHosts().Update(f.Ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
				NewWithT(t).Expect(*q).To(Equal(want), who)
			}
		})
	}
}

// A change of the chosen host enqueues the cluster without a delay.
func TestChosenHostEnqueuesItsCluster(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h", ChosenAt: metav1.Now()}
		c.Spec.ControlPlaneEndpoint.Host = "10.0.0.1"
	})
	h := f.host("h", "10.0.0.1")
	after := h.DeepCopy()
	after.ResourceVersion = "later"
	f.Expect(enqueued(f.reconciler.EndpointHosts(), event.UpdateEvent{ObjectOld: h, ObjectNew: after}).now).To(ConsistOf(f.request()))
}

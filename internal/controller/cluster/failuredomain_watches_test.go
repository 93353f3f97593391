package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// Most changes of hosts do not concern a cluster's failure domains.
func TestHostChangesThatEnqueueClusters(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	f.host("a", "10.0.0.1", labelled(zone, "a"))
	f.reconcileUntilStable()
	host := func(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
		for _, change := range changes {
			change(h)
		}
		return h
	}
	reported := func(h *infrav1.ElementalHost) {
		h.Status.Addresses, h.Annotations = nil, map[string]string{"a": "b"}
	}
	other := claimed("other", infrav1.ClaimBound, infrav1.RoleWorker)
	for name, tc := range map[string]struct {
		before, after *infrav1.ElementalHost
		soon          bool
		later         bool
	}{
		"a host without a domain":         {after: host()},
		"a host of a known domain":        {after: host(labelled(zone, "a"))},
		"a host of a new domain":          {after: host(labelled(zone, "n")), soon: true},
		"a host of another cluster":       {after: host(labelled(zone, "n"), other)},
		"a report":                        {before: host(labelled(zone, "a")), after: host(labelled(zone, "a"), reported)},
		"disconnected":                    {before: host(labelled(zone, "a")), after: host(labelled(zone, "a"), disconnected), later: true},
		"disconnected, of other clusters": {before: host(labelled(zone, "a"), other), after: host(labelled(zone, "a"), other, disconnected)},
		"a claim for the control plane":   {before: host(), after: host(member), soon: true},
		"a label for a new domain":        {before: host(), after: host(labelled(zone, "n")), soon: true},
		"a removed label":                 {before: host(labelled(zone, "a")), after: host(), later: true},
		"a label that a selector may use": {before: host(labelled(zone, "a")), after: host(labelled(zone, "a", "tier", "gold")), later: true},
		"a claim of another cluster":      {before: host(labelled(zone, "a")), after: host(labelled(zone, "a"), other), later: true},
		"a claim, without a domain":       {before: host(), after: host(other)},
		"freed, in a new domain":          {before: host(labelled(zone, "n"), other), after: host(labelled(zone, "n")), soon: true},
		"deleted":                         {before: host(labelled(zone, "a")), later: true},
		"deleted, without a domain":       {before: host()},
		"a pending host":                  {after: host(labelled(zone, "n"), pending)},
		"a label of a pending host":       {before: host(labelled(zone, "a"), pending), after: host(labelled(zone, "n"), pending)},
		"an approved host":                {before: host(labelled(zone, "n"), pending), after: host(labelled(zone, "n")), soon: true},
		"approved, in a known domain":     {before: host(labelled(zone, "a"), pending), after: host(labelled(zone, "a"))},
		"a rejection":                     {before: host(labelled(zone, "a")), after: host(labelled(zone, "a"), rejected), later: true},
		"a lock":                          {before: host(labelled(zone, "a")), after: host(labelled(zone, "a"), locked), later: true},
		"a fence":                         {before: host(labelled(zone, "n")), after: host(labelled(zone, "n"), fenced), later: true},
		"the end of a fence":              {before: host(labelled(zone, "n"), fenced), after: host(labelled(zone, "n")), soon: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := &queue{}
			switch handler := f.reconciler.FailureDomainHosts(); {
			case tc.before == nil:
				handler.Create(f.Ctx, event.CreateEvent{Object: tc.after}, q)
			case tc.after == nil:
				handler.Delete(f.Ctx, event.DeleteEvent{Object: tc.before}, q)
			default:
				handler.Update(f.Ctx, event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, q)
			}
			c := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: f.Namespace, Name: "c"}}
			want := queue{}
			if tc.soon {
				want.soon = []ctrl.Request{c}
			}
			if tc.later {
				want.later = []ctrl.Request{c}
			}
			g.Expect(*q).To(Equal(want))
		})
	}
}

// A cluster with cached failure domains is enqueued by changes that may alter them, not by
// every claim of a host.
func TestHostChangesWithCachedDomains(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}, Expression: "host.inventory.cpu.cores > 8"})
	cores := func(n int32) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: n}}
		}
	}
	gold := func(domain string) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			labelled(zone, domain, "tier", "gold")(h)
			cores(16)(h)
		}
	}
	f.host("a1", "10.0.0.1", gold("a"))
	f.host("a2", "10.0.0.2", gold("a"))
	f.host("b1", "10.0.0.3", labelled(zone, "b"))
	f.reconcileUntilStable()
	f.reconcile()
	f.Expect(f.domains()).To(Equal([]string{"+a", "-b"}))
	host := func(name string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := controllertest.FreeHost(f.Namespace, name, f.Clock.Now())
		for _, change := range changes {
			change(h)
		}
		return h
	}
	other := claimed("other", infrav1.ClaimBound, infrav1.RoleWorker)
	for name, tc := range map[string]struct {
		before, after *infrav1.ElementalHost
		soon          bool
		later         bool
	}{
		"one of several is claimed":           {before: host("a1", gold("a")), after: host("a1", gold("a"), other)},
		"the last one is claimed":             {before: host("a2", gold("a")), after: host("a2", gold("a"), other), later: true},
		"the last one for workers is claimed": {before: host("b1", labelled(zone, "b")), after: host("b1", labelled(zone, "b"), other), later: true},
		"one of several changes its domain":   {before: host("a1", gold("a")), after: host("a1", gold("b")), soon: true},
		"one of several no longer matches":    {before: host("a1", gold("a")), after: host("a1", labelled(zone, "a"))},
		"the last one no longer matches":      {before: host("a2", gold("a")), after: host("a2", labelled(zone, "a")), later: true},
		"the last one has fewer cores":        {before: host("a2", gold("a")), after: host("a2", gold("a"), cores(4)), later: true},
		"one has enough cores":                {before: host("b2", gold("b"), cores(4)), after: host("b2", gold("b")), soon: true},
		"a further one":                       {after: host("a3", gold("a"))},
		"a further one for workers":           {after: host("b2", labelled(zone, "b"))},
		"the first for the control plane":     {after: host("b2", gold("b")), soon: true},
		"the first of a domain":               {after: host("c1", labelled(zone, "c")), soon: true},
	} {
		t.Run(name, func(t *testing.T) {
			q := &queue{}
			if tc.before == nil {
				f.reconciler.FailureDomainHosts().Create(f.Ctx, event.CreateEvent{Object: tc.after}, q)
			} else {
				f.reconciler.FailureDomainHosts().Update(f.Ctx, event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, q)
			}
			NewWithT(t).Expect([]bool{len(q.soon) == 1, len(q.later) == 1, len(q.now) == 1}).To(Equal([]bool{tc.soon, tc.later, false}))
		})
	}
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.FailureDomains.HostLabel = "rack" })
	q := &queue{}
	f.reconciler.FailureDomainHosts().Create(f.Ctx, event.CreateEvent{Object: host("a3", labelled("rack", "r1"))}, q)
	f.Expect(q.soon).To(ConsistOf(f.request()), "domains of another label don't count")
}

// A host that loses the watch filter's label counts as deleted.
func TestHostOfAnotherManager(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.reconciler.WatchFilter = "mine"
	host := func(filter string) *infrav1.ElementalHost {
		h := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
		labelled(zone, "a", clusterv1.WatchLabel, filter)(h)
		return h
	}
	q := &queue{}
	f.reconciler.FailureDomainHosts().Update(f.Ctx, event.UpdateEvent{ObjectOld: host("mine"), ObjectNew: host("theirs")}, q)
	f.Expect(*q).To(Equal(queue{later: []ctrl.Request{f.request()}}))
	q = &queue{}
	f.reconciler.FailureDomainHosts().Update(f.Ctx, event.UpdateEvent{ObjectOld: host("theirs"), ObjectNew: host("mine")}, q)
	f.Expect(*q).To(Equal(queue{soon: []ctrl.Request{f.request()}}))
	q = &queue{}
	f.reconciler.FailureDomainHosts().Create(f.Ctx, event.CreateEvent{Object: host("theirs")}, q)
	f.Expect(*q).To(Equal(queue{}))
}

// Machines of the control plane decide what it does next.
func TestMachineChangesThatEnqueueClusters(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	machine := func(changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: f.Meta("m"), Spec: clusterv1.MachineSpec{ClusterName: "c", FailureDomain: "a"}}
		m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		for _, change := range changes {
			change(m)
		}
		return m
	}
	upToDate := func(status metav1.ConditionStatus) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpToDateCondition, Status: status}}
		}
	}
	worker := func(m *clusterv1.Machine) { m.Labels = nil }
	for name, tc := range map[string]struct {
		before, after *clusterv1.Machine
		want          bool
	}{
		"new":               {after: machine(), want: true},
		"gone":              {before: machine(), want: true},
		"no longer current": {before: machine(upToDate(yes)), after: machine(upToDate(no)), want: true},
		"still current":     {before: machine(), after: machine(upToDate(yes))},
		"being deleted":     {before: machine(), after: machine(func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }), want: true},
		"in another domain": {before: machine(), after: machine(func(m *clusterv1.Machine) { m.Spec.FailureDomain = "b" }), want: true},
		"a Node":            {before: machine(), after: machine(func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" })},
		"new worker":        {after: machine(worker)},
	} {
		t.Run(name, func(t *testing.T) {
			q := &queue{}
			switch handler := f.reconciler.FailureDomainMachines(); {
			case tc.before == nil:
				handler.Create(f.Ctx, event.CreateEvent{Object: tc.after}, q)
			case tc.after == nil:
				handler.Delete(f.Ctx, event.DeleteEvent{Object: tc.before}, q)
			default:
				handler.Update(f.Ctx, event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, q)
			}
			want := queue{}
			if tc.want {
				want.now = []ctrl.Request{f.request()}
			}
			NewWithT(t).Expect(*q).To(Equal(want))
		})
	}
}

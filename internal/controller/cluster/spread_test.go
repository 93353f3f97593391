package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// A cluster that has looked at its failure domains is woken by what changes them, and
// not by each claim of each host in them.
func TestWhatWakesAClusterThatKnowsItsDomains(t *testing.T) {
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
	f.settle()
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
		was, is *infrav1.ElementalHost
		soon    bool
		later   bool
	}{
		"one of several is claimed":                  {was: host("a1", gold("a")), is: host("a1", gold("a"), other)},
		"the last one is claimed":                    {was: host("a2", gold("a")), is: host("a2", gold("a"), other), later: true},
		"the last one of a worker's is claimed":      {was: host("b1", labelled(zone, "b")), is: host("b1", labelled(zone, "b"), other), later: true},
		"one of several goes elsewhere":              {was: host("a1", gold("a")), is: host("a1", gold("b")), soon: true},
		"one of several is of another kind now":      {was: host("a1", gold("a")), is: host("a1", labelled(zone, "a"))},
		"the last one is of another kind now":        {was: host("a2", gold("a")), is: host("a2", labelled(zone, "a")), later: true},
		"the last one has other hardware now":        {was: host("a2", gold("a")), is: host("a2", gold("a"), cores(4)), later: true},
		"one has enough now":                         {was: host("b2", gold("b"), cores(4)), is: host("b2", gold("b")), soon: true},
		"a further one":                              {is: host("a3", gold("a"))},
		"a further one of a worker's":                {is: host("b2", labelled(zone, "b"))},
		"the first of the control plane in a domain": {is: host("b2", gold("b")), soon: true},
		"the first of a domain":                      {is: host("c1", labelled(zone, "c")), soon: true},
	} {
		t.Run(name, func(t *testing.T) {
			q := &queue{}
			if tc.was == nil {
				f.reconciler.HostChanges().Create(f.Ctx, event.CreateEvent{Object: tc.is}, q)
			} else {
				f.reconciler.HostChanges().Update(f.Ctx, event.UpdateEvent{ObjectOld: tc.was, ObjectNew: tc.is}, q)
			}
			NewWithT(t).Expect([]bool{len(q.soon) == 1, len(q.later) == 1, len(q.now) == 1}).To(Equal([]bool{tc.soon, tc.later, false}))
		})
	}
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.FailureDomains.HostLabel = "rack" })
	q := &queue{}
	f.reconciler.HostChanges().Create(f.Ctx, event.CreateEvent{Object: host("a3", labelled("rack", "r1"))}, q)
	f.Expect(q.soon).To(ConsistOf(f.request()), "what was found by another label says nothing")
}

// A host that becomes another manager's makes no failure domain any more, and nothing
// is heard of it from then on.
func TestAnotherManagersHostIsGone(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.reconciler.WatchFilter = "mine"
	host := func(filter string) *infrav1.ElementalHost {
		h := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
		labelled(zone, "a", clusterv1.WatchLabel, filter)(h)
		return h
	}
	q := &queue{}
	f.reconciler.HostChanges().Update(f.Ctx, event.UpdateEvent{ObjectOld: host("mine"), ObjectNew: host("theirs")}, q)
	f.Expect(*q).To(Equal(queue{later: []ctrl.Request{f.request()}}))
	q = &queue{}
	f.reconciler.HostChanges().Update(f.Ctx, event.UpdateEvent{ObjectOld: host("theirs"), ObjectNew: host("mine")}, q)
	f.Expect(*q).To(Equal(queue{soon: []ctrl.Request{f.request()}}))
	q = &queue{}
	f.reconciler.HostChanges().Create(f.Ctx, event.CreateEvent{Object: host("theirs")}, q)
	f.Expect(*q).To(Equal(queue{}))
}

// Whatever happens to hosts: where the cluster does not look again, it would find the
// same.
func TestNoChangeOfADomainIsOverlooked(t *testing.T) {
	g := NewWithT(t)
	c := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	selectors, err := selector.NewCompiler()
	g.Expect(err).NotTo(HaveOccurred())
	requests := []placement.Request{{ReservedFor: "c"}, {ReservedFor: "c", Selector: selectors.Compile(t.Context(), &infrav1.HostSelector{
		MatchLabels: infrav1.Labels{"tier": "gold"},
	})}}
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	change := func(h *infrav1.ElementalHost) *infrav1.ElementalHost {
		h = h.DeepCopy()
		switch random.IntN(4) {
		case 0:
			h.Labels = map[string]string{zone: one("", "a", "b", "c"), "tier": one("gold", "iron")}
		case 1:
			h.Spec.Claim = nil
			if cluster := one("", "c", "other"); cluster != "" {
				claimed(cluster, infrav1.ClaimBound, infrav1.ClaimRole(one(string(infrav1.RoleWorker), string(infrav1.RoleControlPlane))))(h)
			}
		case 2:
			h.Spec.Approval = infrav1.Approval(one(string(infrav1.ApprovalApproved), string(infrav1.ApprovalPending)))
		default:
			h.Status.Addresses = nil
		}
		return h
	}
	asleep := 0
	for range 20000 {
		var hosts []*infrav1.ElementalHost
		for i := range 1 + random.IntN(6) {
			h := controllertest.FreeHost("", fmt.Sprintf("h%d", i), metav1.Now().Time)
			for range 3 {
				h = change(h)
			}
			hosts = append(hosts, h)
		}
		request, reserved := requests[random.IntN(2)], one("", "", "h1")
		before := cluster.Look(c, request, reserved, hosts)
		after := slices.Clone(hosts)
		i := random.IntN(len(hosts))
		after[i] = change(hosts[i])
		is := after[i]
		if random.IntN(5) == 0 {
			after, is = slices.Delete(after, i, i+1), nil
		}
		if before.Wakes(t.Context(), c, hosts[i], is) {
			continue
		}
		asleep++
		g.Expect(cluster.Look(c, request, reserved, after).Published()).To(Equal(before.Published()))
	}
	g.Expect(asleep).To(BeNumerically(">", 5000), "most changes matter to nobody")
}

//go:build embedded

package skew

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/checkouts"
)

// The virtual hosts of this repository can have agents of v0.1.0. CI runs this in each run, and the test below in turns.
func TestVirtualHostsBuildWithTheFirstVersion(t *testing.T) {
	r := &rig{WithT: NewWithT(t), t: t}
	first, err := checkouts.Of(t.Context(), root(t), checkouts.First)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.newVersion("v0.1.0", first, false).program).To(BeARegularFile())
}

// Agents of v0.1.0 and of this version serve Machines under load, while the manager of v0.1.0 is upgraded to this version,
// downgraded and upgraded again. With each manager, the agents of half of the hosts change to the other version, and then those
// of the other half. No bootstrap and no reset is lost or repeated, no host is given up, and no condition says at any time that
// something is wrong.
func TestVersionsChangeUnderLoad(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	now := root(t)
	first, err := checkouts.Of(t.Context(), now, checkouts.First)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	r := newRig(t, first)
	const each, managers = 6, 4
	former, present := r.newVersion("v0.1.0", first, false), r.newVersion("present", now, true)
	r.newGroup("a", each, former)
	r.newGroup("b", each, present)
	r.Eventually(func(g Gomega) { r.expectAvailable(g, 2*each) }).Should(Succeed())
	w := r.watch()
	// As many Machines as hosts.
	l := r.newLoad(2 * each)
	manager := former
	for left := managers; left > 0; left-- {
		l.goOn(each)
		for _, g := range r.groups {
			began, to := time.Now(), other(g.version, former, present)
			bootstrapping := g.change(to)
			t.Logf("manager %s: %d agents changed to %s in %s, during %d bootstraps",
				manager.name, each, to.name, time.Since(began).Round(100*time.Millisecond), bootstrapping)
			l.goOn(each)
		}
		if left > 1 {
			began := time.Now()
			manager = other(manager, former, present)
			r.Expect(r.management.Replace(t.Context(), manager.checkout)).To(Succeed())
			t.Logf("manager changed to %s in %s after %d Machines", manager.name, time.Since(began).Round(100*time.Millisecond), l.finished.Load())
		}
	}
	total := l.end()
	r.Eventually(func(g Gomega) { r.expectAvailable(g, 2*each) }).Should(Succeed())
	w.end()
	bootstraps, resets := r.done()
	t.Logf("%d Machines, %d bootstraps, %d resets; %d changes of agents, %d of managers", total, bootstraps, resets, managers*2*each, managers-1)
	r.Expect(bootstraps).To(Equal(total), "each Machine has bootstrapped one host")
	r.Expect(resets).To(Equal(total), "each host was reset after its Machine")
}

// other returns the one of two versions that v is not.
func other(v, former, present *version) *version {
	if v == former {
		return present
	}
	return former
}

// expectAvailable expects that count hosts are free and well.
func (r *rig) expectAvailable(g Gomega, count int) {
	r.t.Helper()
	hosts := &infrav1.ElementalHostList{}
	g.Expect(r.admin.List(r.t.Context(), hosts, client.InNamespace(sites))).To(Succeed())
	g.Expect(hosts.Items).To(HaveLen(count))
	for i := range hosts.Items {
		h := &hosts.Items[i]
		g.Expect(meta.IsStatusConditionTrue(h.Status.Conditions, infrav1.AvailableCondition)).To(BeTrue(), "%s: %+v", h.Name, h.Status.Conditions)
		g.Expect(h.Spec.Lock).To(BeNil(), h.Name)
		g.Expect(h.Spec.Quarantine).To(BeNil(), h.Name)
		g.Expect(h.Status.Failures).To(BeNil(), h.Name)
	}
}

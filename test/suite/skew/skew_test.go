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

// Agents of v0.1.0 and of this version serve Machines under load, while the manager of v0.1.0 is upgraded to this version,
// downgraded and upgraded again. No bootstrap and no reset is lost or repeated, and no host is given up.
func TestManagerChangesUnderLoad(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	now := root(t)
	before, err := checkouts.Of(t.Context(), now, checkouts.First)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	r := newRig(t, before)
	const each = 6
	r.fleet("former", before, each)
	r.fleet("present", now, each)
	r.Eventually(func(g Gomega) { r.expectAvailable(g, 2*each) }).Should(Succeed())
	l := r.newLoad(2 * each * 3 / 4)
	finished := int32(0)
	for _, checkout := range []string{now, before, now} {
		// Some Machines with each manager.
		r.Eventually(l.finished.Load).Should(BeNumerically(">", finished+each))
		began := time.Now()
		r.Expect(r.management.Replace(t.Context(), checkout)).To(Succeed())
		finished = l.finished.Load()
		t.Logf("manager replaced in %s after %d Machines", time.Since(began).Round(100*time.Millisecond), finished)
	}
	r.Eventually(l.finished.Load).Should(BeNumerically(">", finished+each))
	total := l.end()
	t.Logf("%d Machines", total)
	r.Eventually(func(g Gomega) { r.expectAvailable(g, 2*each) }).Should(Succeed())
	bootstraps, resets := r.done()
	r.Expect(bootstraps).To(Equal(total), "each Machine has bootstrapped one host")
	r.Expect(resets).To(Equal(total), "each host was reset after its Machine")
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

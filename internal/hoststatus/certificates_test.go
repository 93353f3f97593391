package hoststatus_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

const day = 24 * time.Hour

// certificates makes the host report an API server's certificate and an authority, with the time
// that is left of each.
func certificates(leaf, authority time.Duration) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Certificates = []infrav1.HostCertificate{
			{Name: "admin.conf", NotAfter: metav1.NewTime(now.Add(leaf + time.Hour))},
			{Name: "pki/apiserver.crt", NotAfter: metav1.NewTime(now.Add(leaf))},
			{Name: "pki/ca.crt", NotAfter: metav1.NewTime(now.Add(authority))},
		}
	}
}

func TestCertificatesValid(t *testing.T) {
	for name, tc := range map[string]struct {
		leaf, authority time.Duration
		want, message   string
		// next is when the condition changes.
		next time.Duration
	}{
		"new":                        {365 * day, 3650 * day, "True CertificatesValid", "", 335 * day},
		"the last day of no worry":   {31 * day, 3650 * day, "True CertificatesValid", "", day},
		"a leaf ends soon":           {30 * day, 3650 * day, "False CertificatesExpiring", "pki/apiserver.crt on the host ends at 2026-04-03T05:06:07Z", 30 * day},
		"a leaf has ended":           {0, 3650 * day, "False CertificatesExpired", "pki/apiserver.crt on the host ended", 3470 * day},
		"an authority ends soon":     {365 * day, 179 * day, "False AuthorityExpiring", "authority pki/ca.crt on the host ends", 179 * day},
		"an authority has ended":     {365 * day, -day, "False CertificatesExpired", "authority pki/ca.crt on the host ended", 335 * day},
		"a leaf before an authority": {day, 100 * day, "False CertificatesExpiring", "pki/apiserver.crt", day},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := host(claim(bound), certificates(tc.leaf, tc.authority))
			hoststatus.Update(h, now)
			c := meta.FindStatusCondition(h.Status.Conditions, infrav1.CertificatesValidCondition)
			g.Expect(string(c.Status) + " " + c.Reason).To(Equal(tc.want))
			g.Expect(c.Message).To(ContainSubstring(tc.message))
			next := hoststatus.CertificatesChange(h, now.Time)
			g.Expect(next.Sub(now.Time)).To(Equal(tc.next))
			// Nothing is written before.
			before := h.DeepCopy()
			hoststatus.Update(h, metav1.NewTime(next.Add(-time.Second)))
			g.Expect(h).To(Equal(before))
			if hoststatus.Update(h, metav1.NewTime(next)); c.Reason != infrav1.CertificatesExpiredReason {
				g.Expect(h).NotTo(Equal(before))
			}
		})
	}
}

// A free host has no certificates, and no condition.
func TestCertificatesOfFreeHosts(t *testing.T) {
	g := NewWithT(t)
	h := host(claim(bound), certificates(day, 3650*day))
	hoststatus.Update(h, now)
	h.Spec.Claim = nil
	hoststatus.Update(h, now)
	g.Expect(h.Status.Certificates).To(BeNil())
	g.Expect(meta.FindStatusCondition(h.Status.Conditions, infrav1.CertificatesValidCondition)).To(BeNil())
	end := hoststatus.CertificatesEnd(h)
	g.Expect(end.IsZero()).To(BeTrue())
	g.Expect(hoststatus.CertificatesChange(h, now.Time).IsZero()).To(BeTrue())
}

func TestEventsOfCertificates(t *testing.T) {
	g := NewWithT(t)
	events := func(before, after *infrav1.ElementalHost) []string {
		var reasons []string
		for _, e := range hoststatus.Events(before, after) {
			reasons = append(reasons, e.Type+" "+e.Reason)
		}
		return reasons
	}
	none := host(claim(bound))
	hoststatus.Update(none, now)
	made := host(claim(bound), certificates(365*day, 3650*day))
	hoststatus.Update(made, now)
	g.Expect(events(none, made)).To(BeEmpty(), "certificates that have just been made")
	expiring := made.DeepCopy()
	hoststatus.Update(expiring, metav1.NewTime(now.Add(336*day)))
	g.Expect(events(made, expiring)).To(Equal([]string{"Warning CertificatesExpiring"}))
	g.Expect(events(expiring, made)).To(Equal([]string{"Normal CertificatesValid"}))
}

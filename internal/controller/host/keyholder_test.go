package host_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// A key may be named by several hosts. Those that the machine has not proved to be say so,
// until the other one is deleted or gets another key.
func TestThreat48_HostsThatDoNotGetTheirMachine(t *testing.T) {
	f := newFixture(t)
	key := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	a, b, c := key("a"), key("b"), key("c")
	having := func(key string) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: key, Generation: 1}
		}
	}
	holder := f.Host("holder", having(a))
	copied := f.Host("copied", having(a))
	declared := f.Host("declared", func(h *infrav1.ElementalHost) {
		h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: a}}
	})
	other := f.Host("other", having(b))
	all := []*infrav1.ElementalHost{holder, copied, declared, other}
	expectAccepted := func(hosts ...*infrav1.ElementalHost) {
		t.Helper()
		for _, h := range hosts {
			f.reconcile(h)
			f.Expect(meta.FindStatusCondition(h.Status.Conditions, infrav1.KeyAcceptedCondition)).To(BeNil(), h.Name)
		}
	}
	expectAccepted(all...)

	f.Report(holder, func(status *infrav1.ElementalHostStatus) { status.KeyFingerprint = a })
	for _, h := range []*infrav1.ElementalHost{copied, declared} {
		f.reconcile(h)
		message := f.ExpectCondition(h, infrav1.KeyAcceptedCondition, no, infrav1.DeclaredElsewhereReason).Message
		f.Expect(message).To(And(ContainSubstring("ElementalHost holder"), ContainSubstring(a)))
	}
	expectAccepted(holder, other)

	controllertest.Change(f.Fixture, holder, func(h *infrav1.ElementalHost) { h.Spec.Identity.KeyFingerprint = c })
	expectAccepted(all...)
}

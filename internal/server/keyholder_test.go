package server_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// otherKey is the fingerprint of a key that no test uses.
const otherKey = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// startWithThief starts the API for two tenants. The harness works in the namespace of the
// first one.
func startWithThief(t *testing.T) (h *harness, thief string) {
	t.Helper()
	thief = env.Namespace(t)
	h = startAcross(t, []string{env.Namespace(t), thief}, clocktesting.NewFakeClock(time.Now()))
	h.registration("edge")
	return h, thief
}

// claimKey creates a host that names a key, as whoever may create hosts in the namespace
// can.
func (h *harness) claimKey(namespace string, identity infrav1.HostIdentity) *infrav1.ElementalHost {
	h.tb.Helper()
	host := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "claimed-"},
		Spec:       infrav1.ElementalHostSpec{HostID: "claimed", Identity: &identity, Approval: infrav1.ApprovalApproved},
	}
	h.must(h.admin.Create(context.Background(), host))
	h.cachedSoon(host)
	return host
}

// forgetStatus removes a host's status, as a restore or a move does.
func (h *harness) forgetStatus(host *infrav1.ElementalHost) {
	h.tb.Helper()
	h.must(h.admin.Get(context.Background(), client.ObjectKeyFromObject(host), host))
	before := host.DeepCopy()
	host.Status = infrav1.ElementalHostStatus{}
	h.must(h.admin.Status().Patch(context.Background(), host, client.MergeFrom(before)))
	h.cachedSoon(host)
}

func (h *harness) expectNoMachine(host *infrav1.ElementalHost) {
	h.tb.Helper()
	before := host.DeepCopy()
	h.must(h.admin.Get(context.Background(), client.ObjectKeyFromObject(host), host))
	NewWithT(h.tb).Expect(host.Spec).To(Equal(before.Spec))
	NewWithT(h.tb).Expect(host.Status.KeyFingerprint).To(BeEmpty())
}

// A machine with a registration token enrols in the token's namespace, whatever others
// declared about its key before.
func TestThreat48_TokenWinsOverForeignDeclarations(t *testing.T) {
	h, thief := startWithThief(t)
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	for name, claims := range map[string][]func(key string) infrav1.HostIdentity{
		"match":       {declaredFor},
		"two matches": {declaredFor, declaredFor},
		"current key": {having},
		"two keys":    {having, having},
		"next key": {func(key string) infrav1.HostIdentity {
			return infrav1.HostIdentity{KeyFingerprint: otherKey, NextKeyFingerprint: key}
		}},
		"former key": {func(key string) infrav1.HostIdentity {
			return infrav1.HostIdentity{KeyFingerprint: otherKey, FormerKeyFingerprint: key}
		}},
		"key and match": {having, declaredFor},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := h.agent()
			var claimed []*infrav1.ElementalHost
			for _, claim := range claims {
				claimed = append(claimed, h.claimKey(thief, claim(a.fingerprint)))
			}
			got := a.enrol(token)
			g.Expect(got.status).To(Equal(http.StatusOK), got.body)
			g.Expect(h.host(a.name).Status.KeyFingerprint).To(Equal(a.fingerprint))
			a.plan("")
			for _, host := range claimed {
				h.expectNoMachine(host)
			}
		})
	}
	t.Run("own declaration and a foreign one", func(t *testing.T) {
		g := NewWithT(t)
		a := h.agent()
		foreign := h.claimKey(thief, declaredFor(a.fingerprint))
		h.declare("mine", infrav1.IdentityMatch{KeyFingerprint: a.fingerprint}, approved)
		g.Expect(a.enrol("").problem().Type).To(Equal(protocol.ProblemTokenRefused), "without a token it is not clear whose the machine is")
		g.Expect(a.enrol(token).status).To(Equal(http.StatusOK))
		g.Expect(a.name).To(Equal("mine"))
		h.expectNoMachine(foreign)
	})
}

func declaredFor(key string) infrav1.HostIdentity {
	return infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: key}}
}

func having(key string) infrav1.HostIdentity {
	return infrav1.HostIdentity{KeyFingerprint: key, Generation: 1}
}

// An enrolled host is neither bound elsewhere nor shut out by hosts that name its key, and
// its next key is as safe.
func TestThreat48_EnrolledHostKeepsItsKey(t *testing.T) {
	g := NewWithT(t)
	h, thief := startWithThief(t)
	h.step(2 * time.Minute)
	token, _ := h.token("edge")
	a := h.enrolled(token)
	first := h.claimKey(thief, having(a.fingerprint))
	second := h.claimKey(thief, infrav1.HostIdentity{KeyFingerprint: otherKey, NextKeyFingerprint: a.fingerprint})
	a.plan("")
	g.Expect(a.enrol("").status).To(Equal(http.StatusOK))
	next := h.agent()
	g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
	next.plan("")
	third := h.claimKey(thief, having(next.fingerprint))
	next.plan("")
	g.Expect(h.host(a.name).Status.KeyFingerprint).To(Equal(next.fingerprint))
	for _, host := range []*infrav1.ElementalHost{first, second, third} {
		h.expectNoMachine(host)
	}
}

// After a restore or a move no status says whose a key is. The host that the machine was
// last enrolled as decides, also while that host is not restored yet.
func TestThreat48_LastHomeDecides(t *testing.T) {
	g := NewWithT(t)
	h, thief := startWithThief(t)
	h.registration("readopting", readopting)
	token, _ := h.token("edge")
	a := h.enrolled(token)
	claimed := h.claimKey(thief, having(a.fingerprint))
	declared := h.claimKey(thief, declaredFor(a.fingerprint))
	own := h.host(a.name)
	h.forgetStatus(own)
	a.home = h.namespace + "/" + a.name
	a.plan("")
	g.Expect(h.host(a.name).Status.KeyFingerprint).To(Equal(a.fingerprint), "others can't take it from now on")

	h.forgetStatus(own)
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: a.id, Namespace: h.namespace, Name: a.name}
	g.Expect(a.enrolAs("", request).status).To(Equal(http.StatusOK))
	g.Expect(h.host(a.name).Status.KeyFingerprint).To(Equal(a.fingerprint))

	h.must(h.admin.Delete(t.Context(), own))
	g.Eventually(func() int { return a.planOf("").status }, eventually, often).Should(Equal(http.StatusUnauthorized))
	if got := a.enrolAs("", request); got.status == http.StatusOK {
		g.Expect(h.host(a.name).Spec.PendingReason).To(Equal(infrav1.PendingReadopted), "at most it is re-adopted at home")
	}
	h.expectNoMachine(claimed)
	h.expectNoMachine(declared)
}

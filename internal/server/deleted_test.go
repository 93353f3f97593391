package server_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// deleteHost deletes a host as an administrator, and waits until the API refuses its key.
func (a *agent) deleteHost() {
	a.h.tb.Helper()
	a.h.must(a.h.admin.Delete(a.h.tb.Context(), a.h.host(a.name)))
	NewWithT(a.h.tb).Eventually(func() string { return a.plan404().problem().Type }, eventually, often).Should(Equal(protocol.ProblemUnknownHost))
}

// expectReturned enrols the agent with the token and without a word about its former host.
func (a *agent) expectReturned(token, why string) {
	a.h.tb.Helper()
	g := NewWithT(a.h.tb)
	g.Expect(a.enrol(token).body).To(ContainSubstring(`"approved":false`), why)
	host := a.h.host(a.name)
	g.Expect(host.Spec.Approval).To(Equal(infrav1.ApprovalPending), why)
	g.Expect(host.Spec.PendingReason).To(Equal(infrav1.PendingReturned), why)
}

func severalUses(t *enrolment.Token) { t.MaxUses = 10 }

// A deleted host that conceals its former enrolment is recognized by its key, whichever token
// of the namespace it has, also if it was deleted while no manager ran.
func TestThreat55_DeletedHostConcealsItsEnrolment(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	h.registration("other")
	token, _ := h.token("edge", severalUses)
	another, _ := h.token("other", severalUses)
	a, b, honest := h.enrolled(token), h.enrolled(token), h.enrolled(token)
	a.deleteHost()
	a.expectReturned(token, "it has its token still")
	a.deleteHost()
	a.expectReturned(another, "it has another token")
	a.deleteHost()

	h.stop()
	h.must(h.admin.Delete(t.Context(), h.host(b.name)))
	again := startIn(t, h.namespace, h.clock)
	again.agentWith(b.key).expectReturned(token, "no manager noticed the deletion")
	again.agentWith(a.key).expectReturned(token, "another manager knows it too")
	back := again.agentWith(honest.key)
	g.Expect(back.enrol(token).body).To(ContainSubstring(`"approved":true`), "a host that exists stays approved")
	g.Expect(again.agent().enrol(token).body).To(ContainSubstring(`"approved":true`), "another machine is a new host")
}

// A deleted host is recognized by each key that it had: the current, the next and the former
// one.
func TestThreat55_DeletedHostHasOtherKeys(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, secret := h.token("edge", severalUses)
	former := h.enrolled(token)
	current, next := h.agent(), h.agent()
	g.Expect(former.rotate(current, 1).status).To(Equal(http.StatusNoContent))
	current.plan("")
	current.name = former.name
	h.cachedSoon(h.host(former.name))
	h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	h.cachedSoon(secret)
	g.Expect(current.rotate(next, 2).status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(former.name).Spec.Identity).To(Equal(&infrav1.HostIdentity{
		KeyFingerprint: current.fingerprint, NextKeyFingerprint: next.fingerprint, FormerKeyFingerprint: former.fingerprint, Generation: 2,
	}))
	current.deleteHost()
	former.expectReturned(token, "former key")
	current.expectReturned(token, "current key")
	next.expectReturned(token, "next key")
}

// A deleted host is not approved by its serial number, and neither is one that was declared
// by its key and had a token. Who declares its key again wants it back.
func TestThreat55_DeletedHostWasDeclared(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", severalUses)
	a := h.enrolled(token)
	a.deleteHost()
	h.declare("rack-7", infrav1.IdentityMatch{SerialNumber: "SN 1"})
	g.Expect(a.enrol(token).body).To(ContainSubstring(`"approved":false`))
	g.Expect(a.name).To(Equal("rack-7"))

	declared := h.agent()
	ofRegistration := func(host *infrav1.ElementalHost) {
		host.Spec.RegistrationRef = &infrav1.LocalReference{Name: "edge"}
	}
	h.declare("by-key", infrav1.IdentityMatch{KeyFingerprint: declared.fingerprint}, ofRegistration)
	g.Expect(declared.enrolAs(token, withSerial("SN 2")).body).To(ContainSubstring(`"approved":true`))
	declared.deleteHost()
	g.Expect(declared.enrolAs(token, withSerial("SN 2")).body).To(ContainSubstring(`"approved":false`))
	declared.deleteHost()
	h.declare("by-key-again", infrav1.IdentityMatch{KeyFingerprint: declared.fingerprint}, ofRegistration)
	g.Expect(declared.enrolAs(token, withSerial("SN 2")).body).To(ContainSubstring(`"approved":true`))
}

// A move creates the Secret of a token and the hosts again, and deletes them at the source.
// Hosts stay approved, also back at the source, and a deleted one stays known.
func TestThreat55_TokensAreMoved(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, secret := h.token("edge", severalUses)
	a, deleted := h.enrolled(token), h.enrolled(token)
	deleted.deleteHost()
	h.must(h.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	host := h.host(a.name)
	h.stop()
	h.must(h.admin.Delete(t.Context(), secret))
	h.must(h.admin.Delete(t.Context(), host))
	h.must(h.admin.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels}, Type: secret.Type, Data: secret.Data,
	}))
	h.must(h.admin.Create(t.Context(), &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name, Labels: host.Labels}, Spec: host.Spec,
	}))
	target := startIn(t, h.namespace, h.clock)
	moved := target.agentWith(a.key)
	g.Expect(moved.enrol(token).body).To(ContainSubstring(`"approved":true`))
	g.Expect(moved.name).To(Equal(a.name))
	target.agentWith(deleted.key).expectReturned(token, "the Secret was moved")
}

package server_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func (a *agent) rotate(to *agent, generation int64) answer {
	a.h.tb.Helper()
	return a.call(http.MethodPost, protocol.PathRotate, rotation(a.h.tb, a, to, generation))
}

// afterGrace waits until the cache shows the former key, and advances the clock beyond the
// time in which it is only refused.
func (h *harness) afterGrace(name string) {
	h.tb.Helper()
	h.cachedSoon(h.host(name))
	h.step(61 * time.Second)
}

func (h *harness) expectLocked(name string) {
	h.tb.Helper()
	g := NewWithT(h.tb)
	lock := h.host(name).Spec.Lock
	g.Expect(lock).NotTo(BeNil())
	g.Expect(lock.Reason).To(Equal(infrav1.LockCloned))
	g.Expect(lock.Message).NotTo(BeEmpty())
	g.Expect(h.events()).To(ContainElement(HavePrefix("Warning " + infrav1.IdentityClonedReason + " " + lock.Message)))
	g.Expect(h.logs.text()).To(ContainSubstring(`"decision":"Locked"`))
}

func TestKeyRotation(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	a, other, next := h.enrolled(token), h.enrolled(token), h.agent()
	h.writes.take()
	answers := a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)

	forged := rotation(t, a, next, 1)
	forged.Signature[8] ^= 1
	g.Expect(a.call(http.MethodPost, protocol.PathRotate, forged).status).To(Equal(http.StatusBadRequest))
	g.Expect(a.rotate(other, 1).status).To(Equal(http.StatusBadRequest), "another host's key can't be taken")
	g.Expect(a.rotate(a, 1).status).To(Equal(http.StatusBadRequest), "the next key must differ")
	g.Expect(h.writes.take()).To(BeEmpty())

	for range 2 { // the answer was lost
		got := a.rotate(next, 1)
		g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	}
	g.Expect(h.host(a.name).Spec.Identity).To(Equal(&infrav1.HostIdentity{
		KeyFingerprint: a.fingerprint, NextKeyFingerprint: next.fingerprint, Generation: 1,
	}))
	g.Expect(h.writes.take()).To(Equal([]string{"patch Secret", "patch ElementalHost"}), "the token remembers the key")
	h.stillPolling(1) // the current key stays accepted
	g.Expect(a.report(protocol.Report{}).status).To(Equal(http.StatusNoContent))
	// A host that does not know which key is accepted sends a report. A report does not
	// promote the key, as the host may lose power before it stores the answer.
	g.Expect(next.report(protocol.Report{}).status).To(Equal(http.StatusNoContent))
	g.Expect(a.plan("").Revision).NotTo(BeEmpty())
	g.Expect(h.writes.take()).To(BeEmpty())

	for range 2 {
		g.Expect(next.plan("").Revision).NotTo(BeEmpty())
	}
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost", "patch ElementalHost/status"}), "the new key, and that the machine has proved to have it")
	g.Expect(h.host(a.name).Spec.Identity).To(Equal(&infrav1.HostIdentity{
		KeyFingerprint: next.fingerprint, FormerKeyFingerprint: a.fingerprint, Generation: 2,
	}))
	g.Expect(receive(t, answers).problem().Type).To(Equal(protocol.ProblemStaleGeneration), "the old key's poll ends")
	// A request that the agent sent with the old key is only refused.
	g.Expect(a.report(protocol.Report{}).problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(a.enrol("").problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
	h.afterGrace(a.name)
	g.Expect(next.plan("").Revision).NotTo(BeEmpty())

	// A second rotation.
	third := h.agent()
	g.Expect(next.rotate(a, 2).status).To(Equal(http.StatusBadRequest), "the former key can't be used again")
	g.Expect(next.rotate(third, 2).status).To(Equal(http.StatusNoContent))
	third.plan("")
	g.Expect(h.host(a.name).Spec.Identity.Generation).To(BeEquivalentTo(3))
}

// A host that missed a new generation is not locked before its first rotation here.
func TestUnexpectedGenerationBeforeARotationDoesNotLock(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	g.Expect(a.rotate(h.agent(), 5).problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
	g.Expect(a.plan("").Revision).NotTo(BeEmpty())
}

// The manager restarts while it receives requests with the former key.
func TestFormerKeyIsOnlyRefusedAfterARestart(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	next := h.agent()
	g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
	next.plan("")
	h.stop()
	h.step(time.Hour)
	again := startIn(t, h.namespace, h.clock)
	late := again.agentWith(a.key)
	again.cachedSoon(again.host(a.name))
	g.Expect(late.report(protocol.Report{}).problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(again.host(a.name).Spec.Lock).To(BeNil())
}

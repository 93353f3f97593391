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

// afterGrace lets the time pass in which a former key is not held against a host,
// once the cache shows that it is the former one.
func (h *harness) afterGrace(name string) {
	h.tb.Helper()
	h.cachedSoon(h.host(name))
	h.clock.Step(61 * time.Second)
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
	g.Expect(a.rotate(a, 1).status).To(Equal(http.StatusBadRequest), "a key does not follow itself")
	g.Expect(h.writes.take()).To(BeEmpty())

	for range 2 { // the answer was lost
		got := a.rotate(next, 1)
		g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	}
	g.Expect(h.host(a.name).Spec.Identity).To(Equal(&infrav1.HostIdentity{
		KeyFingerprint: a.fingerprint, NextKeyFingerprint: next.fingerprint, Generation: 1,
	}))
	g.Expect(h.writes.take()).To(HaveLen(1))
	g.Consistently(answers, 50*time.Millisecond).ShouldNot(Receive(), "the key in use stays good")
	g.Expect(a.report(protocol.Report{}).status).To(Equal(http.StatusNoContent))
	// A host that doesn't know which key is good asks by a report, which commits
	// it to nothing: the power may fail before it remembers the answer.
	g.Expect(next.report(protocol.Report{}).status).To(Equal(http.StatusNoContent))
	g.Expect(a.plan("").Revision).NotTo(BeEmpty())
	g.Expect(h.writes.take()).To(BeEmpty())

	for range 2 {
		g.Expect(next.plan("").Revision).NotTo(BeEmpty())
	}
	g.Expect(h.writes.take()).To(HaveLen(1))
	g.Expect(h.host(a.name).Spec.Identity).To(Equal(&infrav1.HostIdentity{
		KeyFingerprint: next.fingerprint, FormerKeyFingerprint: a.fingerprint, Generation: 2,
	}))
	g.Expect(receive(t, answers).problem().Type).To(Equal(protocol.ProblemStaleGeneration), "the old key's poll ends")
	// What the agent had begun with the old key is refused, and no more.
	g.Expect(a.report(protocol.Report{}).problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(a.enrol("").problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
	h.afterGrace(a.name)
	g.Expect(next.plan("").Revision).NotTo(BeEmpty())

	// And so on.
	third := h.agent()
	g.Expect(next.rotate(a, 2).status).To(Equal(http.StatusBadRequest), "no way back")
	g.Expect(next.rotate(third, 2).status).To(Equal(http.StatusNoContent))
	third.plan("")
	g.Expect(h.host(a.name).Spec.Identity.Generation).To(BeEquivalentTo(3))
}

// A host that never heard how often a manager thinks it changed its key is not
// held to it before both have counted alike.
func TestGenerationOfAnotherLifeLocksNobody(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	g.Expect(a.rotate(h.agent(), 5).problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
	g.Expect(a.plan("").Revision).NotTo(BeEmpty())
}

// The manager restarts while requests with the former key are under way.
func TestFormerKeyRightAfterARestart(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	next := h.agent()
	g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
	next.plan("")
	h.stop()
	h.clock.Step(time.Hour)
	again := startIn(t, h.namespace, h.clock)
	late := again.agentWith(a.key)
	again.cachedSoon(again.host(a.name))
	g.Expect(late.report(protocol.Report{}).problem().Type).To(Equal(protocol.ProblemStaleGeneration))
	g.Expect(again.host(a.name).Spec.Lock).To(BeNil())
}

package server_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A disk, or the state on it, is copied to another machine. The host is locked, in
// whichever way the copy is detected.
func TestThreat05_ClonedDisk(t *testing.T) {
	for name, reveal := range map[string]func(*WithT, *agent, *agent){
		"by the former key": func(g *WithT, a, copied *agent) {
			h := a.h
			next := h.agent()
			g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
			next.plan("")
			h.afterGrace(a.name)
			g.Expect(copied.call(http.MethodGet, protocol.PathPlan, nil).problem().Type).To(Equal(protocol.ProblemLocked))
			a.key, a.fingerprint, a.http = next.key, next.fingerprint, next.http
		},
		"by the former key at the enrolment": func(g *WithT, a, copied *agent) {
			h := a.h
			next := h.agent()
			g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
			next.plan("")
			h.afterGrace(a.name)
			g.Expect(copied.enrol("").problem().Type).To(Equal(protocol.ProblemLocked))
			a.key, a.fingerprint, a.http = next.key, next.fingerprint, next.http
		},
		"by another next key": func(g *WithT, a, copied *agent) {
			g.Expect(a.rotate(a.h.agent(), 1).status).To(Equal(http.StatusNoContent))
			g.Expect(copied.rotate(a.h.agent(), 1).problem().Type).To(Equal(protocol.ProblemLocked))
		},
		"by another count of keys": func(g *WithT, a, _ *agent) {
			h := a.h
			next := h.agent()
			g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
			next.plan("")
			g.Expect(next.rotate(h.agent(), 1).problem().Type).To(Equal(protocol.ProblemLocked))
			a.key, a.fingerprint, a.http = next.key, next.fingerprint, next.http
		},
		"by its boot": func(g *WithT, a, copied *agent) {
			h := a.h
			g.Expect(a.planOf("a").status).To(Equal(http.StatusOK))
			g.Expect(copied.planOf("b").status).To(Equal(http.StatusOK))
			g.Expect(a.planOf("a").status).To(Equal(http.StatusServiceUnavailable), "it may have been sent before the reboot")
			g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
			h.step(11 * time.Second)
			g.Expect(a.planOf("a").problem().Type).To(Equal(protocol.ProblemLocked))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := start(t)
			h.step(2 * time.Minute) // after the grace period of the start
			a := h.ready()
			reveal(g, a, h.agentWith(a.key))
			h.expectLocked(a.name)
			for _, request := range []struct{ method, path string }{
				{http.MethodGet, protocol.PathPlan}, {http.MethodPost, protocol.PathReport}, {http.MethodPost, protocol.PathRotate},
				{http.MethodGet, protocol.PathBootstrap + "?operation=c1"}, {http.MethodPost, protocol.PathEnrol},
			} {
				got := a.call(request.method, request.path, map[bool]any{true: "{}"}[request.method == http.MethodPost])
				g.Expect(got.status).To(Equal(http.StatusForbidden), request.path)
				g.Expect(got.problem().Type).To(Equal(protocol.ProblemLocked), request.path)
			}
			// One copy is destroyed, and an administrator unlocks the host.
			h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Lock = nil }))
			g.Expect(a.planOf("a").status).To(Equal(http.StatusOK))
			g.Expect(a.planOf("c").status).To(Equal(http.StatusOK))
			g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
			g.Eventually(h.logs.text, eventually, often).Should(ContainSubstring(`"decision":"Unlocked"`))
		})
	}
}

// A copy can't avoid being detected by leaving out its boot ID: its polls end and are
// refused once the other machine has sent one. The host is not locked, as that proves no
// second machine.
func TestThreat05_CopyWithoutABootID(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	copied := h.agentWith(a.key)
	revision := copied.plan("").Revision
	waiting := copied.poll(t.Context(), revision)
	h.polling(1)
	g.Expect(a.planOf("a").status).To(Equal(http.StatusOK))
	g.Expect(receive(t, waiting).status).To(Equal(http.StatusNoContent))
	g.Expect(copied.planOf("").status).To(Equal(http.StatusBadRequest))
	g.Expect(a.planOf("a").status).To(Equal(http.StatusOK))
	g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
}

// A machine is restored to an earlier state with an earlier key. The manager detects it by
// the generation of the key.
func TestThreat28_RolledBackState(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.step(2 * time.Minute)
	a := h.ready()
	next := h.agent()
	g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
	next.plan("")
	h.afterGrace(a.name)
	g.Expect(a.rotate(next, 1).problem().Type).To(Equal(protocol.ProblemLocked))
	h.expectLocked(a.name)
	g.Expect(h.host(a.name).Spec.Identity).To(Equal(&infrav1.HostIdentity{
		KeyFingerprint: next.fingerprint, FormerKeyFingerprint: a.fingerprint, Generation: 2,
	}))
}

// A machine is restored to a state with the current key, but with an earlier count of keys.
func TestThreat28_CountOfKeys(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	next := h.agent()
	g.Expect(a.rotate(next, 1).status).To(Equal(http.StatusNoContent))
	next.plan("")
	g.Expect(next.rotate(h.agent(), 1).problem().Type).To(Equal(protocol.ProblemLocked))
	h.expectLocked(a.name)
}

// A host that reboots, or has two polling processes, is not locked.
func TestBootsOfOneHost(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	revision := a.plan("").Revision
	for _, boot := range []string{"", "a", "b", "c", "c", "d"} {
		g.Expect(a.planOf(boot).status).To(Equal(http.StatusOK))
		h.step(time.Minute)
	}
	// A poll on a dead connection ends when the host polls again.
	dead := make(chan answer, 1)
	go func() {
		got, _ := a.do(t.Context(), http.MethodGet, protocol.PathPlan+"?boot=d&after="+revision, "", nil)
		dead <- got
	}()
	h.polling(1)
	g.Expect(a.planOf("e").status).To(Equal(http.StatusOK))
	g.Expect(receive(t, dead).status).To(Equal(http.StatusNoContent))
	g.Expect(h.host(a.name).Spec.Lock).To(BeNil())
}

func TestFence(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	c := h.chain(a.name, "m1")
	c.create(h)
	g.Expect(a.bootstrap("claim-m1").status).To(Equal(http.StatusOK))
	fence := func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} }
	h.cachedSoon(h.patch(a.name, fence))
	g.Expect(a.bootstrap("claim-m1").status).To(Equal(http.StatusForbidden))
	g.Expect(a.rotate(h.agent(), 1).status).To(Equal(http.StatusForbidden))
	g.Expect(a.plan("").Operation).To(BeNil())
	g.Expect(a.enrol("").status).To(Equal(http.StatusOK))
	h.cachedSoon(h.patch(a.name, releasing))
	g.Expect(a.plan("").Operation.Type).To(Equal(protocol.OperationReset))
	g.Expect(a.reportOperation(protocol.OperationReset, "claim-m1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	g.Expect(h.logs.text()).To(And(ContainSubstring(`"reason":"Fenced"`), ContainSubstring(`"decision":"Fenced"`)))
}

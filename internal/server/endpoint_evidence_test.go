package server_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A held host follows the endpoint and probes it, as its plan says. So its reports count.
func TestHeldHostReportsTheEndpoint(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	a.reportEndpoint(probed(endpoint, true, 0))
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Claim.Phase = infrav1.ClaimHeld }))
	h.step(time.Minute)
	after := probed(endpoint, false, 0)
	after.Kubeconfigs = "10.0.0.2:6443"
	a.reportEndpoint(after)
	is := h.host(a.name).Status.Endpoint
	g.Expect(is.Probe.Result).To(Equal(infrav1.ProbeUnreachable))
	g.Expect(is.Kubeconfigs).To(Equal("10.0.0.2:6443"))
}

// The manager asks a host for a report through its open poll. A report that says nothing
// new writes nothing, and answers the question all the same.
func TestHostIsAskedForItsEndpoint(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	a.reportEndpoint(probed(endpoint, true, 0))
	key := types.NamespacedName{Namespace: h.namespace, Name: a.name}
	revision := a.plan("").Revision
	h.writes.take()
	h.step(time.Minute)
	open := a.poll(t.Context(), revision)
	h.polling(1)
	g.Expect(h.metric("elemental_agent_api_endpoint_questions_total")).To(BeZero())

	asked := h.server.Ask(key).AskedAt
	g.Expect(asked).To(Equal(h.clock.Now()))
	var answered answer
	g.Eventually(open, eventually).Should(Receive(&answered))
	var plan protocol.Plan
	g.Expect(json.Unmarshal([]byte(answered.body), &plan)).To(Succeed())
	g.Expect(plan.ReportEndpoint).To(BeTrue())
	g.Expect(plan.Revision).To(Equal(revision), "a question is no change of the plan")
	g.Expect(h.server.Ask(key).Answer).To(BeZero(), "the answer to the poll is not the host's")

	a.reportEndpoint(probed(endpoint, true, 60))
	g.Expect(h.server.Ask(key)).To(Equal(failover.Contact{AskedAt: asked, Answer: failover.Answer{Request: true, Report: true}}))
	g.Expect(a.plan("").ReportEndpoint).To(BeFalse(), "the host was asked once")
	g.Expect(h.writes.take()).To(BeEmpty())
	g.Expect(h.metric("elemental_agent_api_endpoint_questions_total")).To(Equal(1.0))
}

// Evidence that waits to be written is no answer yet: a decision must not be made on what
// it replaces.
func TestDeferredEvidenceIsNoAnswer(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "other")
	a := h.member(token, "m1", infrav1.RoleControlPlane)
	key := types.NamespacedName{Namespace: h.namespace, Name: a.name}
	a.plan("")
	a.reportEndpoint(probed(endpoint, false, 0))
	h.server.Ask(key)
	a.reportEndpoint(probed(endpoint, true, 0))
	g.Expect(h.server.Ask(key).Answer).To(Equal(failover.Answer{Request: true}))
	h.step(time.Second)
	g.Eventually(func() failover.Answer { return h.server.Ask(key).Answer }, eventually, often).Should(Equal(failover.Answer{Request: true, Report: true}))
	g.Expect(h.host(a.name).Status.Endpoint.Probe.Result).To(Equal(infrav1.ProbeReachable))
}

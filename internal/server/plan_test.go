package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func bound(id string) func(*infrav1.ElementalHost) {
	return func(host *infrav1.ElementalHost) {
		host.Spec.Claim = &infrav1.HostClaim{ID: id, ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
	}
}

func releasing(host *infrav1.ElementalHost) { host.Spec.Claim.Phase = infrav1.ClaimReleasing }

func receive(tb testing.TB, from <-chan answer) answer {
	tb.Helper()
	select {
	case got, ok := <-from:
		if !ok {
			tb.Fatal("the poll failed")
		}
		return got
	case <-time.After(eventually):
		tb.Fatal("the poll got no answer")
		return answer{}
	}
}

func TestPollAnswersWhenThePlanChanges(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	p := a.plan("")
	g.Expect(p.Operation).To(BeNil())
	g.Expect(p.ServerTime).To(BeTemporally("~", h.clock.Now(), time.Second))

	answers := a.poll(t.Context(), p.Revision)
	h.polling(1)
	h.patch(a.name, bound("c1"))
	got := receive(t, answers)
	g.Expect(got.status).To(Equal(http.StatusOK))
	g.Expect(got.body).To(ContainSubstring(`"type":"Bootstrap","id":"c1"`))
	g.Expect(got.header.Get("Cache-Control")).To(Equal("no-store"))

	// A change that does not affect the plan does not end the poll.
	p = a.plan("")
	answers = a.poll(t.Context(), p.Revision)
	h.polling(1)
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Labels["x"] = "y" }))
	h.stillPolling(1)
	h.patch(a.name, releasing)
	g.Expect(receive(t, answers).body).To(ContainSubstring(`"type":"Reset","id":"c1"`))
}

// polling waits until that many hosts have an open poll.
func (h *harness) polling(n float64) {
	h.tb.Helper()
	NewWithT(h.tb).Eventually(func() float64 { return h.metric("elemental_agent_api_connected_hosts") }, eventually, often).Should(Equal(n))
}

// metric returns the sum of a metric's values.
func (h *harness) metric(name string) float64 {
	families, err := h.metrics.Gather()
	h.must(err)
	var sum float64
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestPollEndsInTime(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	answers := a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)
	h.step(protocol.PollTimeout - 2*time.Minute - time.Second)
	h.stillPolling(1)
	h.step(2*time.Minute + 2*time.Second)
	g.Expect(receive(t, answers).status).To(Equal(http.StatusNoContent))
}

func TestThreat22_RevocationEndsOpenPolls(t *testing.T) {
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 10 })
	for name, test := range map[string]struct {
		revoke func(*harness, string)
		kind   string
	}{
		"rejected": {func(h *harness, name string) {
			h.patch(name, func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected })
		}, protocol.ProblemRevoked},
		"key cleared": {func(h *harness, name string) {
			h.patch(name, func(host *infrav1.ElementalHost) { host.Spec.Identity = nil })
		}, protocol.ProblemUnknownHost},
		"locked": {func(h *harness, name string) {
			h.patch(name, func(host *infrav1.ElementalHost) { host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} })
		}, protocol.ProblemLocked},
		"another key": {func(h *harness, name string) {
			h.patch(name, func(host *infrav1.ElementalHost) {
				host.Spec.Identity.KeyFingerprint = "sha256:" + strings.Repeat("0", 64)
			})
		}, protocol.ProblemUnknownHost},
		"deleted": {func(h *harness, name string) {
			h.must(h.admin.Delete(context.Background(), h.host(name)))
		}, protocol.ProblemUnknownHost},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := h.enrolled(token)
			answers := a.poll(t.Context(), a.plan("").Revision)
			h.polling(1)
			test.revoke(h, a.name)
			g.Expect(receive(t, answers).problem().Type).To(Equal(test.kind), "it ended although no time has passed")
			g.Expect(a.call(http.MethodGet, protocol.PathPlan, nil).problem().Type).To(Equal(test.kind))
			g.Expect(a.call(http.MethodPost, protocol.PathReport, protocol.Report{}).problem().Type).To(Equal(test.kind))
			g.Expect(a.bootstrap("c1").problem().Type).To(Equal(test.kind))
			g.Expect(a.rotate(h.agent(), 1).problem().Type).To(Equal(test.kind))
			if test.kind != protocol.ProblemUnknownHost {
				g.Expect(a.enrol("").problem().Type).To(Equal(test.kind))
			}
			h.polling(0)
		})
	}
}

func TestChangedURLReachesHostsAndCertificate(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	r := h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	_, err := h.handshake("agents.example.com")
	g.Expect(err).To(HaveOccurred())

	answers := a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)
	before := r.DeepCopy()
	r.Spec.Endpoint.URL = "https://agents.example.com:8443"
	g.Expect(h.admin.Patch(t.Context(), r, client.MergeFrom(before))).To(Succeed())
	g.Expect(receive(t, answers).body).To(ContainSubstring(`"servers":["https://agents.example.com:8443","` + h.url + `"]`))
	cert, err := h.handshake("agents.example.com")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cert.DNSNames).To(Equal([]string{"agents.example.com"}), "a certificate reveals no other names")
}

func TestShutdownEndsOpenPolls(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	answers := a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)
	h.stop()
	got := receive(t, answers)
	g.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	g.Expect(got.header.Get("Retry-After")).To(MatchRegexp(`^[1-6]$`))
}

// BenchmarkPlanLatency measures the time from a write of an administrator until a waiting
// agent has the changed plan.
func BenchmarkPlanLatency(b *testing.B) {
	h := start(b)
	h.registration("edge")
	token, _ := h.token("edge")
	a := h.enrolled(token)
	h.cachedSoon(h.patch(a.name, bound("c1")))
	for b.Loop() {
		b.StopTimer()
		answers := a.poll(b.Context(), a.plan("").Revision)
		h.polling(1)
		host := h.host(a.name)
		before := host.DeepCopy()
		if host.Spec.Claim.Phase == infrav1.ClaimBound {
			host.Spec.Claim.Phase = infrav1.ClaimReleasing
		} else {
			host.Spec.Claim.Phase = infrav1.ClaimBound
		}
		b.StartTimer()
		h.must(h.admin.Patch(b.Context(), host, client.MergeFrom(before)))
		receive(b, answers)
	}
}

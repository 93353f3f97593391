package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// silent opens a connection that says nothing.
func (h *harness) silent() net.Conn {
	h.tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(h.url, "https://"))
	h.must(err)
	h.tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// All hosts come back at once, or somebody acts as if: handshakes take turns, and
// one that is not made is ended.
func TestThreat15_ReconnectStorm(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxHandshakes, o.HandshakeTimeout = 2, time.Second })
	var group sync.WaitGroup
	ends := make(chan time.Time, 4)
	for range cap(ends) {
		conn := h.silent()
		group.Go(func() {
			_, _ = conn.Read(make([]byte, 1))
			ends <- time.Now()
		})
	}
	a := h.agent()
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	group.Wait()
	first := <-ends
	second, third, fourth := (<-ends).Sub(first), (<-ends).Sub(first), (<-ends).Sub(first)
	t.Logf("ended %s, %s and %s after the first", second, third, fourth)
	g.Expect(fourth).To(BeNumerically(">=", 700*time.Millisecond), "it was let in when another's second was over")

	// Who has shaken hands holds nobody up, however long it stays.
	for range 20 {
		other := h.agent()
		group.Go(func() { _, _ = other.do(context.Background(), http.MethodGet, protocol.PathPlan, "", nil) })
	}
	group.Wait()
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
}

// One source is kept from having keys checked at any rate, before a handshake.
func TestThreat29_RateBeforeCrypto(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.ConnectionRate, o.ConnectionBurst = 1, 3 })
	a := h.agent()
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	h.silent()
	h.silent()
	_, err := h.silent().Read(make([]byte, 1))
	g.Expect(err).To(MatchError(io.EOF), "closed unseen")
	g.Expect(h.metric("elemental_agent_api_refused_connections_total")).To(Equal(1.0))
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost), "who is connected stays so")
	h.clock.Step(2 * time.Second)
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
}

// Who may not know what exists gets the same answer, byte for byte.
func TestThreat29_NothingToEnumerate(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("denying", func(r *infrav1.ElementalRegistration) { r.Spec.Readoption = infrav1.ReadoptionDenied })
	existing, _ := h.token("denying", func(t *enrolment.Token) { t.Used = 1 })
	orphan, _ := h.token("gone")
	a := h.agent()
	from := func(namespace string) *protocol.Previous {
		return &protocol.Previous{HostID: "x", Namespace: namespace, Name: "x"}
	}
	var first answer
	for i, try := range []struct {
		token    string
		previous *protocol.Previous
	}{
		{identity.NewToken(), nil}, {existing, nil}, {orphan, nil}, {"", nil}, {"", from(h.namespace)}, {existing, from(h.namespace)},
		{"", from("kube-system")}, {"", from("there-is-none")}, {"", from("../" + h.namespace)}, {"", from("")},
	} {
		request := enrolRequest()
		request.Previous = try.previous
		got := a.enrolAs(try.token, request)
		if i == 0 {
			first = got
			g.Expect(first.problem().Type).To(Equal(protocol.ProblemTokenRefused))
		}
		g.Expect(got.status).To(Equal(first.status))
		g.Expect(got.body).To(Equal(first.body))
		got.header.Del("Date")
		first.header.Del("Date")
		g.Expect(got.header).To(Equal(first.header))
	}
	g.Expect(h.hosts()).To(BeEmpty())
}

// Nobody fills the API server with hosts that wait for approval.
func TestThreat30_PendingHosts(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	manual := func(limit int32) func(*infrav1.ElementalRegistration) {
		return func(r *infrav1.ElementalRegistration) {
			r.Spec.Approval, r.Spec.MaxPendingHosts = infrav1.ApprovalManual, limit
		}
	}
	h.registration("edge", manual(3))
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	var group sync.WaitGroup
	for range 10 {
		a := h.agent()
		group.Go(func() { _, _ = a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, enrolRequest()) })
	}
	group.Wait()
	g.Expect(h.hosts()).To(HaveLen(3))
	a := h.agent()
	got := a.enrol(token)
	g.Expect(got.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(got.header.Get("Retry-After")).To(Equal("300"))
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "x", Namespace: h.namespace, Name: "x"}
	g.Expect(a.enrolAs("", request).status).To(Equal(http.StatusTooManyRequests))
	g.Expect(h.events()).To(ContainElement(HavePrefix("Warning TooManyPendingHosts")))
	g.Expect(strings.Count(h.logs.text(), `"decision":"PendingLimit"`)).To(Equal(1), "a flood is not logged in full")

	h.cachedSoon(h.patch(h.hosts()[0].Name, approved))
	g.Expect(a.enrol(token).status).To(Equal(http.StatusOK))

	// Of a namespace, as many may come back as its most generous registration has room for.
	h.registration("wide", manual(5))
	for range 5 {
		g.Expect(h.agent().enrolAs("", request).status).To(Equal(http.StatusOK))
	}
	g.Expect(h.agent().enrolAs("", request).status).To(Equal(http.StatusTooManyRequests))
	wide, _ := h.token("wide")
	g.Expect(h.agent().enrol(wide).status).To(Equal(http.StatusOK), "they are not the registration's")
}

// A host that is shut out asks for ever; the log has other things to tell.
func TestAuditLogIsNotFlooded(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected }))
	for range 20 {
		g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemRevoked))
	}
	g.Expect(strings.Count(h.logs.text(), `"decision":"KeyRefused"`)).To(Equal(1))
	h.clock.Step(11 * time.Minute)
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemRevoked))
	g.Expect(strings.Count(h.logs.text(), `"decision":"KeyRefused"`)).To(Equal(2))
	g.Eventually(h.logs.text, eventually, often).Should(ContainSubstring(`"decision":"Rejected"`))
	for line := range strings.Lines(h.logs.text()) {
		if strings.Contains(line, `"decision":`) {
			g.Expect(line).To(ContainSubstring(`/audit"`))
		}
	}
	g.Expect(h.metric("elemental_agent_api_decisions_total")).To(BeNumerically(">", 21))
}

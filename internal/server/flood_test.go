package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// silent opens a connection from that address and sends nothing.
func (h *harness) silent(from string) net.Conn {
	h.tb.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(context.Background(), "tcp", strings.TrimPrefix(h.url, "https://"))
	h.must(err)
	h.tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// When all hosts reconnect at once, or an attacker does the same, concurrent handshakes are
// bounded, and one that makes no progress is ended.
func TestThreat15_ReconnectStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		const timeout = 5 * time.Second
		h := startInBubble(t, func(o *server.Options) { o.MaxHandshakes, o.HandshakeTimeout = 2, timeout })
		var group sync.WaitGroup
		var ends [4]time.Time
		for i := range ends {
			conn, err := h.network.dialer(fmt.Sprintf("127.0.0.%d", i+2))(t.Context(), "", "")
			g.Expect(err).NotTo(HaveOccurred())
			group.Go(func() {
				_, _ = conn.Read(make([]byte, 1))
				ends[i] = time.Now()
			})
			time.Sleep(time.Millisecond)
		}
		group.Wait()
		for i := range 2 {
			g.Expect(ends[i+2].Sub(ends[i])).To(Equal(timeout), "the later handshake begins when the earlier one ends")
		}

		// A connection after its handshake does not count. A source with many handshakes at once
		// tries again.
		for i := range 3 {
			h.strangerFrom(fmt.Sprintf("127.0.0.%d", i+2))
		}
		g.Expect(h.metric("elemental_agent_api_unauthenticated_connections")).To(Equal(3.0))
		refused := func() string {
			got, err := h.agent().do(t.Context(), http.MethodGet, protocol.PathPlan, "", nil)
			if err != nil {
				return err.Error()
			}
			return got.problem().Type
		}
		for range 20 {
			group.Go(func() { _ = refused() })
		}
		group.Wait()
		synctest.Wait()
		g.Expect(refused()).To(Equal(protocol.ProblemUnknownHost))
	})
}

// A source that does not continue its handshakes blocks only itself.
func TestThreat15_SilentConnections(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxHandshakes, o.HandshakeTimeout = 4, time.Hour })
	h.silent("127.0.0.2")
	h.silent("127.0.0.2")
	for range 20 {
		conn := h.silent("127.0.0.2")
		h.must(conn.SetReadDeadline(time.Now().Add(eventually)))
		_, err := conn.Read(make([]byte, 1))
		g.Expect(err).To(MatchError(io.EOF), "the source has its maximum")
	}
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	g.Expect(h.metric("elemental_agent_api_refused_connections_total")).To(Equal(20.0))
}

// The rate of polls is limited, and a poll leaves no timed call behind.
func TestThreat15_PlanFlood(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	a, other := h.enrolled(token), h.enrolled(token)
	revision := a.plan("").Revision
	const burst = 100
	h.step(time.Minute)
	waiting := h.server.ScheduledCalls()
	for range burst {
		a.plan("")
	}
	g.Expect(h.server.ScheduledCalls()).To(BeNumerically("<=", waiting+1), "only the check of its disconnection remains")
	got := a.planOf("")
	g.Expect(got.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(got.header.Get("Retry-After")).To(Equal("1"))
	other.plan("")

	// Of too many open polls, the first ends.
	h.step(time.Minute)
	first := a.poll(t.Context(), revision)
	h.polling(1)
	for range 4 {
		a.poll(t.Context(), revision)
	}
	g.Expect(receive(t, first).status).To(Equal(http.StatusNoContent))
}

// New connections of one source are limited before the handshake.
func TestThreat29_RateBeforeCrypto(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.ConnectionRate, o.ConnectionBurst = 1, 3 })
	a := h.ready()
	a.plan("")
	h.silent("127.0.0.1")
	h.silent("127.0.0.1")
	_, err := h.silent("127.0.0.1").Read(make([]byte, 1))
	g.Expect(err).To(MatchError(io.EOF), "closed before the handshake")
	g.Expect(h.metric("elemental_agent_api_refused_connections_total")).To(Equal(1.0))
	a.plan("") // existing connections stay
	h.step(2 * time.Second)
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
}

// A caller that may not know what exists gets the same answer, byte for byte.
func TestThreat29_NothingToEnumerate(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("denying")
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

// The number of hosts that wait for approval is bounded.
func TestThreat30_PendingHosts(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	manual := func(limit int32) func(*infrav1.ElementalRegistration) {
		return func(r *infrav1.ElementalRegistration) {
			r.Spec.Approval, r.Spec.MaxPendingHosts, r.Spec.Readoption = infrav1.ApprovalManual, limit, infrav1.ReadoptionPending
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
	g.Expect(h.events()).To(ContainElement(HavePrefix("Warning TooManyPendingHosts")))
	g.Expect(strings.Count(h.logs.text(), `"decision":"PendingLimit"`)).To(Equal(1), "repeated refusals are logged once")

	h.cachedSoon(h.patch(h.hosts()[0].Name, approved))
	g.Expect(a.enrol(token).status).To(Equal(http.StatusOK))

	// Re-adopted hosts of a namespace are bounded by its highest limit.
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "x", Namespace: h.namespace, Name: "x"}
	h.registration("wide", manual(5))
	for range 5 {
		g.Expect(h.agent().enrolAs("", request).status).To(Equal(http.StatusOK))
	}
	g.Expect(h.agent().enrolAs("", request).status).To(Equal(http.StatusTooManyRequests))
	wide, _ := h.token("wide")
	g.Expect(h.agent().enrol(wide).status).To(Equal(http.StatusOK), "re-adopted hosts do not count for the registration")
}

// Hosts that come back with a token count for the limit of its registration, and not for that
// of hosts without one: otherwise one leaked token fills both.
func TestThreat30_PendingHostsThatReturn(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge", readopting, func(r *infrav1.ElementalRegistration) { r.Spec.MaxPendingHosts = 2 })
	token, _ := h.token("edge", severalUses)
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: "x", Namespace: h.namespace, Name: "x"}
	for _, with := range []string{token, ""} {
		for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
			g.Expect(h.agent().enrolAs(with, request).status).To(Equal(want))
		}
	}
}

// A rejected host retries forever. Its refusal is logged once in ten minutes.
func TestAuditLogIsNotFlooded(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected }))
	for range 20 {
		g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemRevoked))
	}
	g.Expect(strings.Count(h.logs.text(), `"decision":"KeyRefused"`)).To(Equal(1))
	h.step(11 * time.Minute)
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

// An administrator has copied a host object: its key is in two hosts. The machine keeps the
// host that it has proved to be. If none is known, the key is refused, and enrols no third
// host.
func TestKeyInTwoHostsCreatesNoThirdHost(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	a := h.enrolled(token)
	original := h.host(a.name)
	second := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "copied"}, Spec: *original.Spec.DeepCopy()}
	second.Spec.HostID = "other"
	h.must(h.admin.Create(t.Context(), second))
	h.cachedSoon(second)
	g.Expect(a.planOf("").status).To(Equal(http.StatusOK))

	h.forgetStatus(original)
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	for _, with := range []string{"", token} {
		g.Expect(a.enrol(with).problem().Type).To(Equal(protocol.ProblemTokenRefused))
	}
	g.Expect(h.hosts()).To(HaveLen(2))
	g.Expect(h.logs.text()).To(ContainSubstring("KeyInTwoHosts"))

	h.must(h.admin.Delete(t.Context(), second))
	g.Eventually(func() int { return a.planOf("").status }, eventually, often).Should(Equal(http.StatusOK))
}

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// silent opens a connection from that address which says nothing.
func (h *harness) silent(from string) net.Conn {
	h.tb.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(context.Background(), "tcp", strings.TrimPrefix(h.url, "https://"))
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
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		conn := h.silent(from)
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

// One source that begins handshakes without going on keeps out itself alone.
func TestThreat15_SilentConnections(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxHandshakes, o.HandshakeTimeout = 4, time.Hour })
	h.silent("127.0.0.2")
	h.silent("127.0.0.2")
	for range 20 {
		conn := h.silent("127.0.0.2")
		h.must(conn.SetReadDeadline(time.Now().Add(eventually)))
		_, err := conn.Read(make([]byte, 1))
		g.Expect(err).To(MatchError(io.EOF), "it has its share")
	}
	g.Expect(h.agent().plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	g.Expect(h.metric("elemental_agent_api_refused_connections_total")).To(Equal(20.0))
}

// A host asks as often as it has to, and not more: what it asks for is dropped when
// it is answered.
func TestThreat15_PlanFlood(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	a, other := h.enrolled(token), h.enrolled(token)
	revision := a.plan("").Revision
	const burst = 100
	h.clock.Step(time.Minute)
	waiting := h.server.Scheduled()
	for range burst {
		a.plan("")
	}
	g.Expect(h.server.Scheduled()).To(BeNumerically("<=", waiting+1), "only that it has gone is still to be found out")
	got := a.planOf("")
	g.Expect(got.status).To(Equal(http.StatusTooManyRequests))
	g.Expect(got.header.Get("Retry-After")).To(Equal("1"))
	other.plan("")

	// Of many polls at once the first ends.
	h.clock.Step(time.Minute)
	first := a.poll(t.Context(), revision)
	h.polling(1)
	for range 4 {
		a.poll(t.Context(), revision)
	}
	g.Expect(receive(t, first).status).To(Equal(http.StatusNoContent))
}

// One source is kept from having keys checked at any rate, before a handshake.
func TestThreat29_RateBeforeCrypto(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.ConnectionRate, o.ConnectionBurst = 1, 3 })
	a := h.agent()
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	h.silent("127.0.0.1")
	h.silent("127.0.0.1")
	_, err := h.silent("127.0.0.1").Read(make([]byte, 1))
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

// Somebody copied a host's YAML: the key is in two hosts, and its host doesn't make
// more of them.
func TestKeyInTwoHostsMakesNoThird(t *testing.T) {
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
	g.Expect(a.plan404().problem().Type).To(Equal(protocol.ProblemUnknownHost))
	request := enrolRequest()
	request.Previous = &protocol.Previous{HostID: original.Spec.HostID, Namespace: h.namespace, Name: original.Name}
	for _, with := range []string{"", token} {
		g.Expect(a.enrolAs(with, request).problem().Type).To(Equal(protocol.ProblemTokenRefused))
	}
	g.Expect(h.hosts()).To(HaveLen(2))
	g.Expect(h.logs.text()).To(ContainSubstring("KeyInTwoHosts"))

	h.must(h.admin.Delete(t.Context(), second))
	g.Eventually(func() int { return a.planOf("").status }, eventually, often).Should(Equal(http.StatusOK))
}

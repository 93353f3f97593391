package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// dialled counts the connections that the agent makes. The transport may still dial after the
// request for which it began has got another connection.
func (a *agent) dialled() *atomic.Int32 {
	n := new(atomic.Int32)
	transport, ok := a.http.Transport.(*http.Transport)
	if !ok {
		a.h.tb.Fatal("not a Transport")
	}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		n.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return n
}

// ends makes a request on a new connection. It returns what ends the connection, and the number
// of connections that the agent makes.
func (a *agent) ends(g Gomega, method, path string) (<-chan error, *atomic.Int32) {
	end, n := make(chan error, 1), new(atomic.Int32)
	transport, ok := a.http.Transport.(*http.Transport)
	g.Expect(ok).To(BeTrue())
	a.http.CloseIdleConnections()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		n.Add(1)
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &watched{Conn: conn, end: end}, err
	}
	_, err := a.do(context.Background(), method, path, "", nil)
	g.Expect(err).NotTo(HaveOccurred())
	return end, n
}

// watched is a connection that tells when it ends, by either side.
type watched struct {
	net.Conn
	end chan<- error
}

func (c *watched) Close() error {
	select {
	case c.end <- net.ErrClosed:
	default:
	}
	return c.Conn.Close()
}

func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		select {
		case c.end <- err:
		default:
		}
	}
	return n, err
}

// The connection of a caller without a known key ends after the first refusal, whatever
// was refused. So no sequence of requests keeps it open.
func TestThreat53_ClosedAfterTheFirstRefusal(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	for _, request := range [][2]string{
		{http.MethodGet, protocol.PathPlan}, {http.MethodGet, "/favicon.ico"}, {http.MethodDelete, protocol.PathPlan}, {http.MethodPost, protocol.PathEnrol},
	} {
		end, _ := h.agent().ends(g, request[0], request[1])
		g.Eventually(end, eventually, often).Should(Receive(), "%v", request)
	}

	// The connection of a known host stays.
	a := h.ready()
	dialled := a.dialled()
	a.http.CloseIdleConnections()
	for range 3 {
		a.plan("")
		got, err := a.do(t.Context(), http.MethodGet, "/favicon.ico", "", nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.status).To(Equal(http.StatusNotFound))
	}
	g.Expect(dialled.Load()).To(BeEquivalentTo(1))

	// Once it is not known any more, it ends too.
	end, n := a.ends(g, http.MethodGet, protocol.PathPlan)
	a.plan("")
	g.Expect(n.Load()).To(BeEquivalentTo(1), "the first answer has not ended it")
	g.Expect(end).NotTo(Receive())
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected }))
	g.Expect(a.planOf("").status).To(Equal(http.StatusForbidden))
	g.Eventually(end, eventually, often).Should(Receive())
}

// A connection that is not authenticated within two minutes ends, whatever it did.
func TestThreat53_UnauthenticatedForTooLong(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	stranger, known := h.agent(), h.ready()
	end, _ := stranger.ends(g, http.MethodGet, "/v1/openapi.json")
	_, n := known.ends(g, http.MethodGet, protocol.PathPlan)
	g.Expect(h.metric("elemental_agent_api_unauthenticated_connections")).To(Equal(1.0))
	h.step(2*time.Minute + time.Second)
	g.Eventually(end, eventually, often).Should(Receive())
	g.Eventually(func() float64 { return h.metric("elemental_agent_api_unauthenticated_connections") }, eventually, often).Should(BeZero())
	h.settle()
	known.plan("")
	g.Expect(n.Load()).To(BeEquivalentTo(1), "the known host has its connection")
	g.Expect(h.metric("elemental_agent_api_evicted_connections_total")).To(Equal(1.0))
}

// Strangers hold all connections that they may have. Hosts whose key is known connect all
// the same.
func TestThreat53_KnownKeysUnderPressure(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxUnauthenticated = 1 })
	known := h.ready()
	known.http.CloseIdleConnections()
	for range 3 {
		conn := h.strangerFrom("127.0.0.2")
		t.Cleanup(func() { _ = conn.Close() })
	}
	_, err := h.agent().do(t.Context(), http.MethodGet, protocol.PathPlan, "", nil)
	g.Expect(err).To(HaveOccurred(), "another stranger finds no place")
	known.plan("")
	g.Expect(h.metric("elemental_agent_api_unauthenticated_connections")).To(Equal(1.0))
}

// One source holds three quarters of the connections of strangers. New hosts of other
// sources enrol all the same.
func TestThreat53_NewHostsUnderPressure(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.MaxUnauthenticated = 4 })
	h.registration("edge")
	token, _ := h.token("edge")
	for range 6 {
		conn := h.strangerFrom("127.0.0.2")
		t.Cleanup(func() { _ = conn.Close() })
	}
	g.Eventually(func() float64 { return h.metric("elemental_agent_api_unauthenticated_connections") }, eventually, often).Should(Equal(3.0))
	for _, from := range []string{"127.0.0.3", "127.0.0.4"} {
		conn := h.strangerFrom(from)
		t.Cleanup(func() { _ = conn.Close() })
	}
	g.Expect(h.agent().enrol(token).status).To(Equal(http.StatusOK))
}

// strangerFrom makes the handshake of an unknown key from that address.
func (h *harness) strangerFrom(address string) io.Closer {
	h.tb.Helper()
	a := h.agent()
	transport, ok := a.http.Transport.(*http.Transport)
	if !ok {
		h.tb.Fatal("not a Transport")
	}
	dial := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	if h.network != nil {
		dial = h.network.dialer(address)
	}
	var conn net.Conn
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		var err error
		conn, err = dial(ctx, network, to)
		return conn, err
	}
	_, err := a.do(context.Background(), http.MethodGet, "/v1/openapi.json", "", nil)
	if err != nil {
		h.tb.Logf("a stranger was cut off: %v", err)
	}
	return conn
}

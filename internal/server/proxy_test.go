package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// through makes the agent connect from a local address and begin with a header.
func (a *agent) through(local, header string) *agent {
	a.h.tb.Helper()
	transport, ok := a.http.Transport.(*http.Transport)
	if !ok {
		a.h.tb.Fatal("not a Transport")
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil && header != "" {
			_, err = fmt.Fprint(conn, header)
		}
		return conn, err
	}
	return a
}

// header is a PROXY protocol header of version 1.
func header(source string) string {
	return fmt.Sprintf("PROXY TCP4 %s 203.0.113.1 4711 443\r\n", source)
}

// The manager takes the address of callers from the PROXY protocol of listed load
// balancers, so that limits by address are those of the callers. Nobody else can claim an
// address, and the load balancers cannot leave it out.
func TestThreat54_ProxyProtocol(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) {
		o.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
		o.ConnectionRate, o.ConnectionBurst = 0.001, 1
	})
	h.registration("edge")
	token, _ := h.token("edge")
	const proxy = "127.0.0.2"
	g.Expect(h.agent().through(proxy, header("192.0.2.7")).enrol(token).status).To(Equal(http.StatusOK))
	var enrolled string
	for line := range strings.Lines(h.logs.text()) {
		if strings.Contains(line, `"decision":"Enrolled"`) {
			enrolled = line
		}
	}
	g.Expect(enrolled).To(ContainSubstring(`"source":"192.0.2.7:4711"`))
	again := h.agent().through(proxy, header("192.0.2.7"))
	_, err := again.do(t.Context(), http.MethodGet, protocol.PathPlan, "", nil)
	g.Expect(err).To(HaveOccurred(), "the limit is that of the caller's address")
	g.Expect(h.agent().through(proxy, header("192.0.2.8")).plan404().status).To(Equal(http.StatusUnauthorized))

	_, err = h.agent().through(proxy, "").do(t.Context(), http.MethodGet, protocol.PathPlan, "", nil)
	g.Expect(err).To(HaveOccurred(), "the load balancer's address would be taken for the caller's")
	_, err = h.agent().through("127.0.0.3", header("192.0.2.9")).do(t.Context(), http.MethodGet, protocol.PathPlan, "", nil)
	g.Expect(err).To(HaveOccurred(), "it is no load balancer")
	g.Expect(h.agent().through("127.0.0.4", "").plan404().status).To(Equal(http.StatusUnauthorized))
}

package server_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// upgraded sends the request for a tunnel and nothing more, and reads the start of HTTP/2,
// so that the set-up is in progress.
func (a *agent) upgraded() *tls.Conn {
	a.h.tb.Helper()
	conn, got := a.asks(upgradeOf("boot-1"))
	if got.status != http.StatusSwitchingProtocols {
		a.h.tb.Fatalf("upgrade: %d %s", got.status, got.body)
	}
	_, err := io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0")))
	a.h.must(err)
	return conn
}

// A host that answers nothing after the upgrade has one such connection, keeps no other
// tunnel from being opened, and does not delay the end of the manager.
func TestTunnelOfASilentAgent(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a, b := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "m2", infrav1.RoleControlPlane)
	first := a.upgraded()
	second := a.upgraded()
	_, _ = io.Copy(io.Discard, first) // ends
	_, err := a.reached()
	g.Expect(err).To(MatchError(tunnel.ErrAbsent), "a tunnel that does not answer is none")
	b.openTunnel("boot-1")
	h.stop()
	_, _ = io.Copy(io.Discard, second) // ends
	g.Expect(h.metric("elemental_tunnels_opened_total")).To(Equal(1.0))
}

func TestTunnelOfAnAgentThatSendsGarbage(t *testing.T) {
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane)
	for name, garbage := range map[string]string{
		"text":         "GET /v1/plan HTTP/1.1\r\nHost: m\r\n\r\n",
		"large frames": "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\xff\xff\xff",
		"another kind": "\x00\x00\x00\x63\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			conn := a.upgraded()
			_, err := io.WriteString(conn, garbage)
			g.Expect(err).NotTo(HaveOccurred())
			_, _ = io.Copy(io.Discard, conn) // ends
			_, err = a.reached()
			g.Expect(err).To(MatchError(tunnel.ErrAbsent))
		})
	}
	t.Run("before the upgrade", func(t *testing.T) {
		g := NewWithT(t)
		conn := a.connect("http/1.1")
		_, err := io.WriteString(conn, upgradeOf("boot-1")+"garbage")
		g.Expect(err).NotTo(HaveOccurred())
		answer, _ := io.ReadAll(conn)
		g.Expect(answer).To(BeEmpty(), "it is closed, as the bytes may belong to anything")
	})
	a.openTunnel("boot-1")
}

func TestThreat13_StreamsOfATunnelAreBounded(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane)
	a.openTunnel("boot-1")
	const limit = 128
	g.Eventually(func() int { return h.server.Streams(a.hostKey()) }, eventually, often).Should(BeZero())
	streams := make([]net.Conn, limit)
	for i := range streams {
		streams[i] = a.stream()
	}
	g.Expect(h.server.Streams(a.hostKey())).To(Equal(limit))
	g.Expect(h.metric("elemental_tunnels_streams")).To(BeEquivalentTo(limit))
	_, err := h.server.Dial(t.Context(), a.hostKey(), protocol.TargetAPIServer)
	g.Expect(err).To(MatchError(tunnel.ErrTooManyStreams))
	g.Expect(streams[0].Close()).To(Succeed())
	g.Eventually(a.reached, eventually, often).Should(Equal(a.name))
}

// A host gets no tunnel of another, whichever host it says that it is.
func TestThreat10_TunnelOfAnotherHost(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	victim, a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "m2", infrav1.RoleControlPlane)
	claims := "\r\n" + protocol.HeaderHome + ": " + h.namespace + "/" + victim.name + "\r\n\r\n"
	conn, got := a.asks(upgradeOf("boot-1")[:len(upgradeOf("boot-1"))-len("\r\n\r\n")] + claims)
	g.Expect(got.status).To(Equal(http.StatusSwitchingProtocols))
	go func() { _ = tunnel.Serve(t.Context(), conn, a.greet) }()
	g.Eventually(a.reached, eventually, often).Should(Equal(a.name))
	_, err := victim.reached()
	g.Expect(err).To(MatchError(tunnel.ErrAbsent))
}

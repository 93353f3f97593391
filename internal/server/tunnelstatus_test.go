package server_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// lose ends the agent's side of the server's only tunnel, as a network that fails, and waits
// until the server has scheduled what follows.
func (a *agent) lose(conn net.Conn, ended <-chan error) {
	a.h.tb.Helper()
	a.h.settle()
	scheduled := a.h.server.ScheduledCalls()
	a.h.must(conn.Close())
	NewWithT(a.h.tb).Eventually(ended, eventually).Should(Receive())
	NewWithT(a.h.tb).Eventually(func() float64 { return a.h.metric("elemental_tunnels_connected") }, eventually, often).Should(BeZero())
	NewWithT(a.h.tb).Eventually(a.h.server.ScheduledCalls, eventually, often).Should(BeNumerically(">", scheduled))
}

func TestTunnelStatus(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) { o.DisconnectGrace = 24 * time.Hour }) // nobody polls
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane)
	is := func() *infrav1.HostTunnel { return h.host(a.name).Status.Tunnel }
	one := []string{"patch ElementalHost/status"}

	// A host that opens none.
	asked := h.clock.Now()
	g.Expect(is()).To(BeNil())
	h.step(19 * time.Second)
	g.Expect(h.settledWrites()).To(BeEmpty())
	h.step(time.Second)
	g.Expect(h.settledWrites()).To(Equal(one))
	g.Expect(is().State).To(Equal(infrav1.ConnectionDisconnected))
	g.Expect(is().Since.Time).To(BeTemporally("~", asked, time.Second))
	g.Expect(is().Message).To(Equal("The host has opened no tunnel"))

	// It opens one.
	conn, ended := a.tunnelOn("boot-1")
	g.Expect(h.settledWrites()).To(Equal(one), "at once")
	g.Expect(is()).To(HaveValue(Equal(infrav1.HostTunnel{State: infrav1.ConnectionConnected, Since: is().Since})))
	g.Expect(is().Since.Time).To(BeTemporally("==", h.clock.Now().Truncate(time.Second)))

	// It loses it for a moment, or replaces it.
	h.step(time.Minute)
	a.lose(conn, ended)
	h.step(19 * time.Second)
	_, former := a.tunnelOn("boot-1")
	conn, ended = a.tunnelOn("boot-1")
	g.Eventually(former, eventually).Should(Receive())
	h.step(time.Minute)
	g.Expect(h.settledWrites()).To(BeEmpty())

	// It loses it.
	lost := h.clock.Now()
	a.lose(conn, ended)
	g.Expect(h.settledWrites()).To(BeEmpty())
	h.step(20 * time.Second)
	g.Expect(h.settledWrites()).To(Equal(one))
	g.Expect(is().State).To(Equal(infrav1.ConnectionDisconnected))
	g.Expect(is().Since.Time).To(BeTemporally("==", lost.Truncate(time.Second)))
	g.Expect(is().Message).To(HavePrefix("The tunnel ended: "))
	h.step(time.Hour)
	g.Expect(h.settledWrites()).To(BeEmpty(), "a state is written once")

	// Its plan asks for none.
	_, ended = a.tunnelOn("boot-1")
	g.Expect(h.settledWrites()).To(Equal(one))
	h.cachedSoon(h.patch(a.name, releasing))
	a.expectEnd(ended)
	g.Eventually(is, eventually, often).Should(BeNil())
	g.Expect(h.settledWrites()).To(Equal(one))
	h.step(time.Hour)
	g.Expect(h.settledWrites()).To(BeEmpty())
}

// A restart of the manager writes nothing about tunnels that come back, and finds those that
// don't.
func TestTunnelStatusAfterARestart(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	back, lost := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "m2", infrav1.RoleControlPlane)
	back.tunnelOn("boot-1")
	lost.tunnelOn("boot-1")
	h.settle()
	before := h.host(back.name).Status.Tunnel
	g.Expect(before.State).To(Equal(infrav1.ConnectionConnected))
	g.Expect(h.host(lost.name).HasTunnel()).To(BeTrue())
	h.stop()

	next := startIn(t, h.namespace, h.clock)
	began := next.clock.Now()
	back.moveTo(next) // a server that answers has seen all hosts
	next.step(server.DefaultDisconnectGrace - time.Second)
	g.Expect(back.planOf("boot-1").status).To(Equal(http.StatusOK))
	back.tunnelOn("boot-1")
	g.Expect(next.settledWrites()).To(BeEmpty())
	next.step(time.Second)
	g.Eventually(func() bool { return next.host(lost.name).HasTunnel() }, eventually, often).Should(BeFalse())
	g.Expect(next.host(lost.name).Status.Tunnel.Since.Time).To(BeTemporally("~", began, time.Second))
	g.Expect(next.host(back.name).Status.Tunnel).To(Equal(before))
}

// Tunnels at rest cause no write, and wake nobody.
func TestIdleTunnelsCauseNothing(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	fleet := []*agent{
		h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "m2", infrav1.RoleControlPlane),
		h.tunnelMember(token, "w1", infrav1.RoleWorker),
	}
	for _, a := range fleet[:2] {
		a.openTunnel("boot-1")
		a.reportEndpoint(protocol.EndpointReport{Local: "c-endpoint:16443", APIServer: &protocol.APIServer{Ready: true, Address: "10.0.0.5:6443"}})
	}
	h.settledWrites()
	scheduled := h.server.ScheduledCalls()
	for range 3 {
		answers := make([]<-chan answer, len(fleet))
		for i, a := range fleet {
			answers[i] = a.pollOf(t.Context(), "boot-1", a.revisionOf("boot-1"))
		}
		h.polling(float64(len(fleet)))
		h.step(protocol.PollTimeout + time.Second)
		for _, from := range answers {
			g.Expect(receive(t, from).status).To(Equal(http.StatusNoContent))
		}
	}
	g.Expect(h.settledWrites()).To(BeEmpty())
	g.Expect(h.server.ScheduledCalls()).To(BeNumerically("<=", scheduled))
	for _, a := range fleet[:2] {
		g.Expect(a.reached()).To(Equal(a.name))
	}
}

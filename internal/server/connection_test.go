package server_test

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	clocktesting "k8s.io/utils/clock/testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

func (h *harness) connection(name string) infrav1.ConnectionState {
	return h.host(name).Status.Connection.State
}

func TestConnectionIsWrittenWhenItChanges(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	revision := a.plan("").Revision
	g.Expect(h.settledWrites()).To(BeEmpty(), "the enrolment has written Connected")

	// The host stays connected between polls within the grace period.
	for range 5 {
		ctx, hangUp := context.WithCancel(t.Context())
		a.poll(ctx, revision)
		h.polling(1)
		h.step(30 * time.Second)
		hangUp()
		h.polling(0)
		h.step(server.DefaultDisconnectGrace - time.Second)
	}
	g.Expect(h.settledWrites()).To(BeEmpty())

	h.step(2 * time.Second)
	g.Eventually(func() infrav1.ConnectionState { return h.connection(a.name) }, eventually, often).Should(Equal(infrav1.ConnectionDisconnected))
	host := h.host(a.name)
	g.Expect(host.Status.Connection.Since.Time).To(BeTemporally("~", h.clock.Now(), time.Second))
	g.Expect(meta.IsStatusConditionFalse(host.Status.Conditions, infrav1.ConnectedCondition)).To(BeTrue())
	g.Expect(meta.IsStatusConditionFalse(host.Status.Conditions, infrav1.AvailableCondition)).To(BeTrue())
	h.step(time.Hour)
	g.Expect(h.settledWrites()).To(Equal([]string{"patch ElementalHost/status"}))

	a.poll(t.Context(), revision)
	g.Eventually(func() infrav1.ConnectionState { return h.connection(a.name) }, eventually, often).Should(Equal(infrav1.ConnectionConnected))
	g.Expect(h.settledWrites()).To(Equal([]string{"patch ElementalHost/status"}))
}

func TestEnrolledHostThatNeverPollsIsDisconnected(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	h.step(server.DefaultDisconnectGrace + time.Second)
	g.Eventually(func() infrav1.ConnectionState { return h.connection(a.name) }, eventually, often).Should(Equal(infrav1.ConnectionDisconnected))
}

func TestRestart(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	back, lost := h.enrolled(token), h.enrolled(token)
	h.stop()

	next := startIn(t, h.namespace, clocktesting.NewFakeClock(h.clock.Now()))
	returned := next.agentWith(back.key)
	returned.name = back.name
	next.cachedSoon(next.host(lost.name))
	p := returned.plan("")
	returned.poll(t.Context(), p.Revision)
	next.polling(1)
	g.Expect(next.settledWrites()).To(BeEmpty(), "a reconnection causes no write")
	next.step(server.DefaultDisconnectGrace + time.Second)
	// The poll has ended; the host polls again.
	returned.poll(t.Context(), p.Revision)
	g.Eventually(func() infrav1.ConnectionState { return next.connection(lost.name) }, eventually, often).Should(Equal(infrav1.ConnectionDisconnected))
	g.Expect(next.connection(back.name)).To(Equal(infrav1.ConnectionConnected))
	g.Expect(next.settledWrites()).To(Equal([]string{"patch ElementalHost/status"}))
}

func TestIdleFleetCausesNoWrites(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	const fleet = 200
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = fleet })
	agents := make([]*agent, fleet)
	for i := range agents {
		agents[i] = h.enrolled(token)
	}
	revision := agents[0].plan("").Revision
	h.writes.take()
	for range 3 {
		answers := make([]<-chan answer, fleet)
		for i, a := range agents {
			answers[i] = a.poll(t.Context(), revision)
		}
		h.polling(fleet)
		h.step(protocol.PollTimeout + time.Second)
		for _, from := range answers {
			g.Expect(receive(t, from).status).To(Equal(http.StatusNoContent))
		}
	}
	g.Expect(h.settledWrites()).To(BeEmpty())
}

// Times of the server's pings. They are not the defaults.
const pingAfter, pingTimeout = time.Minute, 10 * time.Second

func pinging(o *server.Options) { o.PingAfter, o.PingTimeout = pingAfter, pingTimeout }

// A host that answers the server's pings stays connected.
func TestIdleConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		h := startInBubble(t, pinging)
		a := h.ready()
		sent := a.plugIn(nil)
		a.poll(t.Context(), a.plan("").Revision)
		h.polling(1)
		before := sent.Load()
		const answers = 5
		time.Sleep(answers*pingAfter + pingTimeout)
		g.Expect(sent.Load() - before).To(BeEquivalentTo(answers))
		h.stillPolling(1)
	})
}

// A pulled cable closes no connection. The server has to ping.
func TestSilentConnectionIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startInBubble(t, pinging)
		a := h.ready()
		silent := make(chan struct{})
		a.plugIn(silent)
		a.poll(t.Context(), a.plan("").Revision)
		h.polling(1)
		close(silent)
		time.Sleep(pingAfter + pingTimeout - time.Second)
		h.stillPolling(1)
		time.Sleep(2 * time.Second)
		h.stillPolling(0)
	})
}

// plugIn makes the agent connect anew, through a cable that is pulled when the channel is
// closed. It returns the number of the cable's writes.
func (a *agent) plugIn(pulled <-chan struct{}) *atomic.Int64 {
	a.h.tb.Helper()
	sent := &atomic.Int64{}
	a.http.CloseIdleConnections()
	a.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := a.h.network.dialer("127.0.0.1")(ctx, "", "")
		return &cable{Conn: conn, pulled: pulled, sent: sent}, err
	}
	return sent
}

// cable is a connection that discards what it should send once it was pulled.
type cable struct {
	net.Conn
	pulled <-chan struct{}
	sent   *atomic.Int64
}

func (c *cable) Write(p []byte) (int, error) {
	select {
	case <-c.pulled:
		return len(p), nil
	default:
		c.sent.Add(1)
		return c.Conn.Write(p)
	}
}

func TestHTTP1(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	a.http.Transport.(*http.Transport).Protocols = protocols
	a.http.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	a.http.CloseIdleConnections()
	ctx, hangUp := context.WithCancel(t.Context())
	a.poll(ctx, a.plan("").Revision)
	h.polling(1)
	hangUp()
	h.polling(0)
	answers := a.poll(t.Context(), a.plan("").Revision)
	h.polling(1)
	h.patch(a.name, bound("c1"))
	g.Expect(receive(t, answers).status).To(Equal(http.StatusOK))
}

package listener

import (
	"fmt"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

func newConnections(t *testing.T, handshakes, unauthenticated int) *Connections {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	return NewConnections(ConnectionsOptions{
		Clock: clock, Timers: timer.NewQueue(clock), MaxHandshakes: handshakes, MaxUnauthenticated: unauthenticated, Metrics: metrics,
	})
}

// remoteConn is a connection that somebody made from an address.
type remoteConn struct {
	net.Conn
	remote net.Addr
	closed bool
}

func (c *remoteConn) RemoteAddr() net.Addr { return c.remote }

func (c *remoteConn) Close() error {
	c.closed = true
	return nil
}

// from returns a connection of an IPv4 address or an IPv6 /64.
func (c *Connections) from(ip string) (*conn, *remoteConn) {
	inner := &remoteConn{remote: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
	return c.newConn(inner, nil), inner
}

// silent begins a handshake that waits for its peer.
func (c *Connections) silent(ip string) (verdict, *remoteConn) {
	from, inner := c.from(ip)
	v := c.begin(from)
	if v == admitted {
		c.setSilent(from, true)
	}
	return v, inner
}

func (c *Connections) step(d time.Duration) {
	if clock, ok := c.clock.(*clocktesting.FakeClock); ok {
		clock.Step(d)
	}
}

// Two sources fill all handshakes and stay silent. Others still get one each, at once.
func TestThreat53_TwoSourcesHoldNoHandshakes(t *testing.T) {
	g := NewWithT(t)
	c := newConnections(t, 8, 8)
	for range 4 {
		for _, source := range []string{"2001:db8:0:1::1", "2001:db8:0:2::1"} {
			v, _ := c.silent(source)
			g.Expect(v).To(Equal(admitted))
		}
	}
	v, _ := c.silent("2001:db8:0:1::2")
	g.Expect(v).To(Equal(refused), "the source has half of them")
	for i := range 4 {
		v, inner := c.silent(fmt.Sprintf("192.0.2.%d", i))
		g.Expect(v).To(Equal(admitted))
		g.Expect(inner.closed).To(BeFalse())
	}
	g.Expect(c.handshakes.count).To(Equal(8))
}

// Many sources have one silent handshake each. A newcomer waits until one of them has been
// silent for a second, and never takes the place of one that computes.
func TestThreat53_SilentHandshakesMakeRoom(t *testing.T) {
	g := NewWithT(t)
	c := newConnections(t, 2, 8)
	_, first := c.silent("192.0.2.1")
	computing, computingInner := c.from("192.0.2.2")
	g.Expect(c.begin(computing)).To(Equal(admitted))
	v, _ := c.silent("192.0.2.3")
	g.Expect(v).To(Equal(full))
	c.step(handshakeStay)
	v, _ = c.silent("192.0.2.3")
	g.Expect(v).To(Equal(admitted))
	g.Expect(first.closed).To(BeTrue())
	c.setSilent(computing, false)
	v, _ = c.silent("192.0.2.4")
	g.Expect(v).To(Equal(full))
	g.Expect(computingInner.closed).To(BeFalse())
}

// A source whose hosts are connected gets a handshake before sources of strangers.
func TestThreat53_SourcesOfKnownHostsGoFirst(t *testing.T) {
	g := NewWithT(t)
	c := newConnections(t, 2, 8)
	known, _ := c.from("192.0.2.1")
	g.Expect(c.begin(known)).To(Equal(admitted))
	g.Expect(c.established(known, "key", true)).To(BeTrue())
	_, stranger := c.silent("198.51.100.1")
	_, other := c.silent("198.51.100.2")
	v, _ := c.silent("192.0.2.1")
	g.Expect(v).To(Equal(admitted), "although the others have no more than it")
	g.Expect(stranger.closed).To(BeTrue())
	g.Expect(other.closed).To(BeFalse())
}

// open makes a connection that has completed its handshake.
func (c *Connections) open(ip, key string, known bool) (*conn, *remoteConn, bool) {
	from, inner := c.from(ip)
	if c.begin(from) != admitted {
		return from, inner, false
	}
	return from, inner, c.established(from, key, known)
}

// Unauthenticated connections are bounded by source and in all. One source cannot keep
// out others, and none of this concerns known keys.
func TestThreat53_UnauthenticatedConnections(t *testing.T) {
	g := NewWithT(t)
	c := newConnections(t, 100, 8)
	var strangers []*remoteConn
	for i := range 6 {
		_, inner, ok := c.open("198.51.100.1", fmt.Sprint("s", i), false)
		g.Expect(ok).To(BeTrue())
		strangers = append(strangers, inner)
	}
	_, inner, ok := c.open("198.51.100.1", "one more", false)
	g.Expect(ok).To(BeFalse(), "the source has three quarters")
	g.Expect(inner.closed).To(BeTrue())
	for i := range 4 {
		_, _, ok := c.open(fmt.Sprintf("198.51.100.%d", i+2), "other", false)
		g.Expect(ok).To(BeTrue(), "others take the places of the source that has the most")
	}
	g.Expect(strangers[0].closed).To(BeTrue())
	g.Expect(strangers[1].closed).To(BeTrue())
	g.Expect(strangers[2].closed).To(BeFalse())
	g.Expect(c.unauthenticated.count).To(Equal(8))
	for i := range 50 {
		_, _, ok := c.open("198.51.100.1", fmt.Sprint("k", i), true)
		g.Expect(ok).To(BeTrue(), "a known key, although its source has its maximum")
	}
}

// A connection counts as what it is now, and nothing is left of closed ones.
func TestConnectionsForgetClosedOnes(t *testing.T) {
	g := NewWithT(t)
	c := newConnections(t, 10, 10)
	from, _, ok := c.open("192.0.2.1", "key", false)
	g.Expect(ok).To(BeTrue())
	g.Expect(c.timers.Len()).To(Equal(1))
	g.Expect(c.classify(from, true)).To(BeTrue())
	g.Expect(c.unauthenticated.count).To(BeZero())
	g.Expect(c.timers.Len()).To(BeZero())
	g.Expect(c.classify(from, false)).To(BeTrue())
	g.Expect(c.unauthenticated.count).To(Equal(1))
	g.Expect(c.keys).To(BeEmpty())
	g.Expect(from.Close()).To(Succeed())
	g.Expect(from.Close()).To(Succeed())
	g.Expect(c.classify(from, true)).To(BeFalse())
	g.Expect(c.unauthenticated.count).To(BeZero())
	g.Expect(c.unauthenticated.groups).To(BeEmpty())
	g.Expect(c.handshakes.groups).To(BeEmpty())
	g.Expect(c.sources).To(BeEmpty())
	g.Expect(c.keys).To(BeEmpty())
	g.Expect(c.timers.Len()).To(BeZero())
}

// One key cannot hold many connections: its oldest is closed.
func TestThreat53_ConnectionsOfAKey(t *testing.T) {
	g := NewWithT(t)
	c := newConnections(t, 100, 100)
	_, first, _ := c.open("192.0.2.1", "key", true)
	for range maxPerKey - 1 {
		_, _, ok := c.open("192.0.2.1", "key", true)
		g.Expect(ok).To(BeTrue())
	}
	g.Expect(first.closed).To(BeFalse())
	_, _, ok := c.open("192.0.2.1", "key", true)
	g.Expect(ok).To(BeTrue())
	g.Expect(first.closed).To(BeTrue())
	g.Expect(c.keys["key"]).To(HaveLen(maxPerKey))
}

package fleet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// someNetwork is a host's that has power, of a fleet with faults.
func someNetwork(t *testing.T, faults Faults) *network {
	t.Helper()
	f, err := New(Settings{Servers: []string{"https://127.0.0.1:1"}, TrustBundle: "-", Folder: t.TempDir(), Faults: faults})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = f.Close() })
	n := &f.Hosts()[0].network
	n.off = false
	return n
}

// listen listens at an address and hands out what connects.
func listen(t *testing.T, at netip.Addr) (address string, accepted <-chan net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	conns := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	return listener.Addr().String(), conns
}

// hears reports whether data or the end of the connection arrives.
func hears(c net.Conn) bool { return hearsWithin(c, time.Minute) }

// hearsAtOnce is hears for what does not arrive.
func hearsAtOnce(c net.Conn) bool { return hearsWithin(c, 200*time.Millisecond) }

func hearsWithin(c net.Conn, limit time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	n, err := c.Read(make([]byte, 1))
	timeout, ok := err.(net.Error) //nolint:errorlint // a connection's own
	return n > 0 || !ok || !timeout.Timeout()
}

// As real hosts do: from an address of its own, and with the agent's bounds.
func TestConnectsFromItsOwnAddress(t *testing.T) {
	g := NewWithT(t)
	n := someNetwork(t, Faults{})
	address, accepted := listen(t, netip.MustParseAddr("127.0.0.1"))
	c, err := n.dial(t.Context(), "tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	peer := <-accepted
	g.Expect(netip.MustParseAddrPort(peer.RemoteAddr().String()).Addr()).To(Equal(n.address))
	raw, err := c.(*conn).Conn.(*net.TCPConn).SyscallConn()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(raw.Control(func(fd uintptr) {
		g.Expect(unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)).To(BeEquivalentTo(tcp.DeadAfter.Milliseconds()))
	})).To(Succeed())
	g.Expect(c.Close()).To(Succeed())
	g.Expect(hears(peer)).To(BeTrue(), "an end in order is told")
	g.Expect(n.conns).To(BeEmpty())
}

// Who is cut off finds its connections failed, and still reaches itself. The other
// side hears nothing of it.
func TestCut(t *testing.T) {
	g := NewWithT(t)
	n := someNetwork(t, Faults{})
	elsewhere, accepted := listen(t, netip.MustParseAddr("127.0.0.1"))
	own, ownAccepted := listen(t, n.address)
	far, err := n.dial(t.Context(), "tcp", elsewhere)
	g.Expect(err).NotTo(HaveOccurred())
	near, err := n.dial(t.Context(), "tcp", own)
	g.Expect(err).NotTo(HaveOccurred())
	failed := make(chan error)
	go func() {
		_, err := far.Read(make([]byte, 1))
		failed <- err
	}()
	n.set(false, true, false)
	g.Expect(<-failed).To(MatchError(syscall.ENETDOWN))
	_, err = far.Write([]byte("x"))
	g.Expect(err).To(MatchError(syscall.ENETDOWN))
	g.Expect(far.Close()).To(Succeed())
	g.Expect(hearsAtOnce(<-accepted)).To(BeFalse())
	_, err = n.dial(t.Context(), "tcp", elsewhere)
	g.Expect(err).To(MatchError(syscall.ENETUNREACH))

	_, err = near.Write([]byte("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hears(<-ownAccepted)).To(BeTrue())
	again, err := n.dial(t.Context(), "tcp", own)
	g.Expect(err).NotTo(HaveOccurred())
	n.set(true, true, false)
	_, err = again.Write([]byte("x"))
	g.Expect(err).To(MatchError(syscall.ENETDOWN), "without power there is nothing")
	_, err = n.dial(t.Context(), "tcp", own)
	g.Expect(err).To(MatchError(syscall.ENETUNREACH))
}

// A connection that has fallen silent takes what is written and brings nothing.
func TestFallsSilent(t *testing.T) {
	g := NewWithT(t)
	n := someNetwork(t, Faults{})
	address, accepted := listen(t, netip.MustParseAddr("127.0.0.1"))
	c, err := n.dial(t.Context(), "tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	peer := <-accepted
	c.(*conn).fallSilent()
	_, err = c.Write([]byte("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hearsAtOnce(peer)).To(BeFalse())
	_, err = peer.Write([]byte("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hearsAtOnce(c)).To(BeFalse())
	g.Expect(c.Close()).To(Succeed())
	g.Expect(hearsAtOnce(peer)).To(BeFalse(), "nor does its end arrive")
	// That is kept for the other side's sake, and not for ever.
	n.fleet.halfClosed.close()
	g.Expect(hears(peer)).To(BeTrue())
}

func TestConnectionsThatAreLost(t *testing.T) {
	g := NewWithT(t)
	n := someNetwork(t, Faults{Loss: 1})
	address, _ := listen(t, netip.MustParseAddr("127.0.0.1"))
	refused, stalled := 0, 0
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := n.dial(ctx, "tcp", address)
		cancel()
		var operation *net.OpError
		g.Expect(err).To(BeAssignableToTypeOf(operation))
		if errors.Is(err, context.DeadlineExceeded) {
			stalled++
		} else {
			refused++
		}
	}
	g.Expect(refused).To(BeNumerically(">", 0))
	g.Expect(stalled).To(BeNumerically(">", 0))
}

// What the agent writes after it was killed never was written.
func TestKilledProcessWritesNothing(t *testing.T) {
	g := NewWithT(t)
	d := &disk{documents: map[string]string{}}
	m := &mount{disk: d}
	g.Expect(m.Write("a/b.json", []byte("1"))).To(Succeed())
	m.kill()
	g.Expect(m.Write("a/b.json", []byte("2"))).To(MatchError(errGone))
	g.Expect(m.Remove("a")).To(MatchError(errGone))
	_, err := m.Read("a/b.json")
	g.Expect(err).To(MatchError(errGone))
	next := &mount{disk: d}
	g.Expect(next.Read("a/b.json")).To(BeEquivalentTo("1"))
	g.Expect(next.endingIn("/b.json")).To(Equal([]string{"a"}))
	g.Expect(next.Remove("a")).To(Succeed())
	g.Expect(next.endingIn("/b.json")).To(BeEmpty())
}

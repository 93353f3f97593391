package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// silentWithin is how soon a connection that is to fall silent does.
const silentWithin = time.Minute

// network is a host's way to others. Its connections come from the host's address.
type network struct {
	fleet   *Fleet
	address netip.Addr

	mu sync.Mutex
	// off: the host has no power. cut: it is cut off.
	off, cut bool
	conns    []*conn
}

// dial connects as a host does, with the faults of the fleet. A host that is cut off
// reaches itself.
func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	if err := n.refusal(kind, address); err != nil {
		return nil, err
	}
	faults := n.fleet.faults.Load()
	if n.fleet.chance(faults.Loss) {
		failure := error(syscall.ECONNREFUSED)
		if n.fleet.chance(0.5) {
			<-ctx.Done()
			failure = context.Cause(ctx)
		}
		return nil, &net.OpError{Op: "dial", Net: kind, Err: failure}
	}
	// As the agent's own, which ctx bounds as well.
	dialer := tcp.Dialer(0)
	dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.address, 0))
	raw, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	c := newConn(raw, n, n.isOwn(address))
	n.mu.Lock()
	down := n.off || n.cut && !c.local
	if !down {
		n.conns = append(n.conns, c)
	}
	n.mu.Unlock()
	if down {
		_ = raw.Close()
		return nil, unreachable(kind)
	}
	if n.fleet.chance(faults.Loss) {
		n.fleet.later(n.fleet.upTo(silentWithin), c.fallSilent)
	}
	return c, nil
}

func (n *network) isOwn(address string) bool {
	to, err := netip.ParseAddrPort(address)
	return err == nil && to.Addr() == n.address
}

// refusal is why nothing can be dialled now.
func (n *network) refusal(kind, address string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off || n.cut && !n.isOwn(address) {
		return unreachable(kind)
	}
	return nil
}

func unreachable(kind string) error {
	return &net.OpError{Op: "dial", Net: kind, Err: syscall.ENETUNREACH}
}

// set changes what state the network is in and ends the connections that don't
// survive that. The other side is told only by a host that ends in order: a cut and a
// lack of power are silent.
func (n *network) set(off, cut, inOrder bool) {
	n.mu.Lock()
	n.off, n.cut = off, cut
	var ended []*conn
	if off || cut {
		n.conns = slices.DeleteFunc(n.conns, func(c *conn) bool {
			ends := off || !c.local
			if ends {
				ended = append(ended, c)
			}
			return ends
		})
	}
	n.mu.Unlock()
	for _, c := range ended {
		c.end(inOrder)
	}
}

// end ends all connections, as the end of a process does.
func (n *network) end() {
	n.mu.Lock()
	ended := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range ended {
		c.end(true)
	}
}

func (n *network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.conns, c); i >= 0 {
		n.conns = slices.Delete(n.conns, i, i+1)
	}
}

// conn is a connection of a host.
type conn struct {
	net.Conn

	network *network
	// local: to the host itself.
	local bool
	// silent: nothing arrives on either side any more, and none has been told.
	// severed: the host has lost it, and the other side has not been told.
	silent, severed atomic.Bool
	// gone is closed when the host is done with it.
	gone  chan struct{}
	leave sync.Once
}

func newConn(raw net.Conn, n *network, local bool) *conn {
	return &conn{Conn: raw, network: n, local: local, gone: make(chan struct{})}
}

// left is told that the host is done with it.
func (c *conn) left() { c.leave.Do(func() { close(c.gone) }) }

// arrived is how long a read takes at least that had to wait for its data. What was
// there before arrived together with what was read and delayed before.
const arrived = 100 * time.Microsecond

// Read delays what arrives by the fleet's latency, a burst of data once.
func (c *conn) Read(p []byte) (int, error) {
	for {
		began := time.Now()
		n, err := c.Conn.Read(p)
		if c.severed.Load() {
			return 0, c.lost("read")
		}
		if c.silent.Load() && n > 0 {
			continue
		}
		if c.silent.Load() && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
			// Nor does the other side's end arrive.
			<-c.gone
			return 0, c.lost("read")
		}
		if latency := c.network.fleet.faults.Load().Latency; latency > 0 && n > 0 && time.Since(began) > arrived {
			<-time.After(latency)
		}
		return n, err
	}
}

// Write writes, unless the connection has fallen silent.
func (c *conn) Write(p []byte) (int, error) {
	switch {
	case c.severed.Load():
		return 0, c.lost("write")
	case c.silent.Load():
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes it. The other side hears nothing of that over a network that is gone.
func (c *conn) Close() error {
	if c.severed.Load() {
		return nil
	}
	c.network.forget(c)
	defer c.left()
	if c.silent.Load() {
		c.sever()
		return nil
	}
	return c.Conn.Close()
}

func (c *conn) lost(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Err: syscall.ENETDOWN}
}

// fallSilent has nothing arrive any more.
func (c *conn) fallSilent() { c.silent.Store(true) }

func (c *conn) end(inOrder bool) {
	defer c.left()
	if inOrder && !c.silent.Load() {
		_ = c.Conn.Close()
		return
	}
	c.sever()
}

// sever fails the connection for the host and leaves the other side waiting.
func (c *conn) sever() {
	if c.severed.Swap(true) {
		return
	}
	// This ends the reads and writes that wait.
	_ = c.SetDeadline(time.Unix(1, 0))
	f := c.network.fleet
	f.limbo.take(c.Conn)
	f.later(limboTime+time.Second, f.limbo.expire)
}

// Connections that one side has lost are kept open for the other side's sake:
// longer than a manager with default flags takes to miss the host, and not so many that
// files run out. The kernel goes on answering for the host, so that it is the manager's
// own question that finds out: after server.DefaultPingAfter and server.DefaultPingTimeout,
// 195 s, which a test compares. The server itself would come with all it is made from.
const (
	limboTime = 5 * time.Minute
	limboMost = 5000
)

// limbo is where connections are that only the other side still has.
type limbo struct {
	mu    sync.Mutex
	conns []dead
}

type dead struct {
	conn  net.Conn
	since time.Time
}

// take takes a connection.
func (l *limbo) take(c net.Conn) {
	l.mu.Lock()
	l.conns = append(l.conns, dead{c, time.Now()})
	l.mu.Unlock()
	l.expire()
}

// expire closes those that have been here long enough.
func (l *limbo) expire() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	over := 0
	for over < len(l.conns) && (len(l.conns)-over > limboMost || now.Sub(l.conns[over].since) > limboTime) {
		_ = l.conns[over].conn.Close()
		over++
	}
	l.conns = slices.Delete(l.conns, 0, over)
}

// close closes all.
func (l *limbo) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.conns {
		_ = d.conn.Close()
	}
	l.conns = nil
}

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

// silentWithin is the maximum age at which a connection chosen by Faults.Loss stalls.
const silentWithin = time.Minute

// network is the network of a host. Its connections come from the host's address.
type network struct {
	fleet   *Fleet
	address netip.Addr
	// root is the root file system, whose /etc/hosts has the names that the host knows.
	root string

	mu sync.Mutex
	// off means that the host has no power, cut that it is disconnected.
	off, cut bool
	conns    []*conn
	// listeners listen at the host's loopback address, by port.
	listeners map[int32]*loopbackListener
}

// dial connects the agent of a host. Its connections end with its process.
func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	return n.connect(ctx, kind, address, true)
}

// dialAsProgram connects another program of a host.
func (n *network) dialAsProgram(ctx context.Context, kind, address string) (net.Conn, error) {
	return n.connect(ctx, kind, address, false)
}

// connect connects from a host, subject to the faults of the fleet. A disconnected host
// still reaches itself.
func (n *network) connect(ctx context.Context, kind, address string, ofAgent bool) (net.Conn, error) {
	at, err := resolve(n.root, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: kind, Err: err}
	}
	if listener := n.own(at); listener != nil {
		return listener.connect(ctx.Done(), func(far *net.UnixConn) net.Conn { return far })
	}
	address = at.String()
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
	// The agent's own dial timeout; ctx bounds it as well.
	dialer := tcp.Dialer(0)
	dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.address, 0))
	raw, err := dialer.DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	c := newConn(raw, n, n.isOwn(address), ofAgent)
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

// refusal returns why the host can't dial now, or nil.
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

// set changes the state of the network and ends the connections that don't survive the
// change. Only an orderly shutdown notifies the other side: a disconnected or unpowered
// host is silent.
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

// end ends all connections of the agent, as the end of its process does.
func (n *network) end() {
	n.mu.Lock()
	var ended []*conn
	n.conns = slices.DeleteFunc(n.conns, func(c *conn) bool {
		if c.ofAgent {
			ended = append(ended, c)
		}
		return c.ofAgent
	})
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
	// local: to the host itself. ofAgent: the agent has made it, not another program.
	local, ofAgent bool
	// silent means that no data arrives on either side, and neither side was notified.
	// severed means that the host lost the connection, and the other side was not notified.
	silent, severed atomic.Bool
	// gone is closed when the host no longer uses the connection.
	gone  chan struct{}
	leave sync.Once
}

func newConn(raw net.Conn, n *network, local, ofAgent bool) *conn {
	return &conn{Conn: raw, network: n, local: local, ofAgent: ofAgent, gone: make(chan struct{})}
}

// left is called when the host no longer uses the connection.
func (c *conn) left() { c.leave.Do(func() { close(c.gone) }) }

// arrived is the minimum duration of a read that waited for its data. Data that was
// available immediately arrived together with the previous, delayed data.
const arrived = 100 * time.Microsecond

// Read delays arriving data by the fleet's latency, each burst once.
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
			// The other side's end of the connection doesn't arrive either.
			<-c.gone
			return 0, c.lost("read")
		}
		if latency := c.network.fleet.faults.Load().Latency; latency > 0 && n > 0 && time.Since(began) > arrived {
			<-time.After(latency)
		}
		return n, err
	}
}

// Write discards data if the connection is silent.
func (c *conn) Write(p []byte) (int, error) {
	switch {
	case c.severed.Load():
		return 0, c.lost("write")
	case c.silent.Load():
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes the connection. Without a network the other side is not notified.
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

// CloseWrite ends the direction from the host. Forwarders pass on such ends.
func (c *conn) CloseWrite() error {
	if c.severed.Load() || c.silent.Load() {
		return nil
	}
	if writer, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return writer.CloseWrite()
	}
	return nil
}

// SetLinger makes Close a reset, by which forwarders pass on an error.
func (c *conn) SetLinger(seconds int) error {
	if lingerer, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return lingerer.SetLinger(seconds)
	}
	return nil
}

func (c *conn) lost(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Err: syscall.ENETDOWN}
}

// fallSilent stops all data on the connection.
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
	// This ends pending reads and writes.
	_ = c.SetDeadline(time.Unix(1, 0))
	f := c.network.fleet
	f.halfClosed.take(c.Conn)
	f.later(halfClosedTime+time.Second, f.halfClosed.expire)
}

// Connections that the host has lost stay open for the other side. halfClosedTime is longer than a manager
// with default flags takes to detect the loss; halfClosedMax limits the number of open files.
// The kernel keeps acknowledging data for the host, so only the manager's ping detects
// the loss, after server.DefaultPingAfter and server.DefaultPingTimeout (195 s, compared
// by a test). Importing the server would add all its dependencies.
const (
	halfClosedTime = 5 * time.Minute
	halfClosedMax  = 5000
)

// halfClosed holds the connections that only the other side still uses.
type halfClosed struct {
	mu    sync.Mutex
	conns []dead
}

type dead struct {
	conn  net.Conn
	since time.Time
}

// take adds a connection.
func (l *halfClosed) take(c net.Conn) {
	l.mu.Lock()
	l.conns = append(l.conns, dead{c, time.Now()})
	l.mu.Unlock()
	l.expire()
}

// expire closes connections older than halfClosedTime, and the oldest if there are more than
// halfClosedMax.
func (l *halfClosed) expire() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	over := 0
	for over < len(l.conns) && (len(l.conns)-over > halfClosedMax || now.Sub(l.conns[over].since) > halfClosedTime) {
		_ = l.conns[over].conn.Close()
		over++
	}
	l.conns = slices.Delete(l.conns, 0, over)
}

// close closes all connections.
func (l *halfClosed) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.conns {
		_ = d.conn.Close()
	}
	l.conns = nil
}

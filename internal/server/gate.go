package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// gate is the listener: connections come out of it with their TLS handshake made.
// It bounds what strangers can cost before they have proven to hold a key: each
// source's rate of new connections, and how many handshakes are under way, of all
// and of one source. Connections beyond those of all wait in the operating system's
// queue; those beyond one source's share are closed, as they would keep the others
// waiting by saying nothing.
//
// Handshakes are made here rather than by the HTTP server because they need a deep
// stack, which a goroutine keeps: the server's lives as long as the connection, and
// would cost every idle host 8 KiB for that.
type gate struct {
	net.Listener
	config  *tls.Config
	sources *limiter
	// timeout ends a handshake that takes too long.
	timeout time.Duration
	// share is how many handshakes of one source may be under way.
	share int
	// refused is called for each connection that is closed unseen.
	refused func()
	logger  logr.Logger

	// slots holds one entry for each handshake under way, computing one for each that
	// is not waiting for its peer.
	slots     chan struct{}
	computing chan struct{}

	ready  chan net.Conn
	closed chan struct{}
	once   sync.Once
	// broken is why there will be no more connections; it is set before closed is
	// closed.
	broken error

	mu sync.Mutex
	// shaking are the connections whose handshakes are under way; nil when closed.
	shaking map[net.Conn]struct{}
	// shares counts them by source.
	shares map[netip.Prefix]int
}

// run accepts connections until the gate is closed or broken, and returns when no
// handshake is under way any more.
func (g *gate) run(ctx context.Context) {
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	for {
		select {
		case g.slots <- struct{}{}:
		case <-g.closed:
			return
		}
		conn, err := g.accept()
		if err != nil {
			g.end(err)
			return
		}
		handshakes.Go(func() {
			shaken := g.shake(ctx, conn)
			<-g.slots
			if shaken == nil {
				return
			}
			select {
			case g.ready <- shaken:
			case <-g.closed:
				_ = shaken.Close()
			}
		})
	}
}

// accept returns the next connection whose source may have one.
func (g *gate) accept() (net.Conn, error) {
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		conn, err := g.Listener.Accept()
		if temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); ok && temporary.Temporary() {
			// There are too many files open, for example.
			g.logger.Error(err, "Connections can't be accepted for now")
			select {
			case <-time.After(pause):
			case <-g.closed:
			}
			pause = min(2*pause, last)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("accepting a connection: %w", err)
		}
		pause = first
		if g.sources.allow(conn.RemoteAddr().String()) && g.begin(conn) {
			return conn, nil
		}
		g.refused()
		_ = conn.Close()
	}
}

// shake makes the handshake. It returns nil, and has closed the connection, if
// there is none.
func (g *gate) shake(ctx context.Context, conn net.Conn) net.Conn {
	defer g.done(conn)
	paced := &pacedConn{Conn: conn, computing: g.computing}
	shaken := tls.Server(paced, g.config)
	err := conn.SetDeadline(time.Now().Add(g.timeout))
	if err == nil {
		err = paced.pace(func() error { return shaken.HandshakeContext(ctx) }) //nolint:wrapcheck // nothing to add
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil {
		return shaken
	}
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil && header.RecordHeader[0] >= 'A' && header.RecordHeader[0] <= 'Z' {
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThe agent API speaks HTTPS only.\n")
	}
	// Anybody can make handshakes fail; that is not worth a line each.
	g.logger.V(4).Info("TLS handshake failed", "source", conn.RemoteAddr().String(), "reason", err.Error())
	_ = conn.Close()
	return nil
}

// pacedConn has few handshakes compute at a time: thousands that are ready to would
// have everything else in the process wait for a processor. One that waits for its
// peer keeps none of the places.
type pacedConn struct {
	net.Conn
	// computing has room for those who may compute; nil means that this is over.
	computing chan struct{}
}

// pace makes the handshake.
func (c *pacedConn) pace(handshake func() error) error {
	computing := c.computing
	computing <- struct{}{}
	err := handshake()
	c.computing = nil
	<-computing
	return err
}

// Read implements net.Conn.
func (c *pacedConn) Read(p []byte) (int, error) {
	if c.computing != nil {
		<-c.computing
		defer func() { c.computing <- struct{}{} }()
	}
	return c.Conn.Read(p) //nolint:wrapcheck // nothing to add
}

// begin tells whether there may be a handshake, which ends by done.
func (g *gate) begin(conn net.Conn) bool {
	source := sourceOf(conn.RemoteAddr().String())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shaking == nil || g.shares[source] >= g.share {
		return false
	}
	g.shaking[conn] = struct{}{}
	g.shares[source]++
	return true
}

func (g *gate) done(conn net.Conn) {
	source := sourceOf(conn.RemoteAddr().String())
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.shaking, conn)
	if g.shares[source]--; g.shares[source] == 0 {
		delete(g.shares, source)
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case conn := <-g.ready:
		return conn, nil
	case <-g.closed:
		return nil, g.broken
	}
}

// end has no more connections come out of the gate, and ends handshakes.
func (g *gate) end(why error) {
	g.once.Do(func() {
		g.broken = why
		close(g.closed)
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.shaking {
		_ = conn.Close()
	}
	g.shaking = nil
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.end(net.ErrClosed)
	return g.Listener.Close() //nolint:wrapcheck // nothing to add
}

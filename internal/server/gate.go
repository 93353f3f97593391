package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// gate is the listener. It bounds what strangers can cost before they have proven
// to hold a key: each source's rate of new connections, and how many handshakes
// are under way. Connections beyond the latter wait in the operating system's
// queue; the HTTP server ends a handshake that takes too long.
type gate struct {
	net.Listener
	sources *limiter
	// slots holds one entry for each handshake under way.
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	// refused is called for each connection that is closed unseen.
	refused func()
}

func newGate(listener net.Listener, sources *limiter, handshakes int, refused func()) *gate {
	return &gate{
		Listener: listener, sources: sources, slots: make(chan struct{}, handshakes), closed: make(chan struct{}), refused: refused,
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case g.slots <- struct{}{}:
	case <-g.closed:
		return nil, fmt.Errorf("accepting a connection: %w", net.ErrClosed)
	}
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.slots
			return nil, err //nolint:wrapcheck // the HTTP server looks at its kind
		}
		if g.sources.allow(conn.RemoteAddr().String()) {
			return &gatedConn{Conn: conn, leave: sync.OnceFunc(func() { <-g.slots })}, nil
		}
		g.refused()
		_ = conn.Close()
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close() //nolint:wrapcheck // nothing to add
}

// gatedConn is a connection that counts as a handshake until leave is called.
type gatedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.leave()
	return c.Conn.Close() //nolint:wrapcheck // nothing to add
}

// leaveGate is a ConnState hook: whatever comes after StateNew comes after the
// handshake.
func leaveGate(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		return
	}
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if gated, ok := conn.(*gatedConn); ok {
		gated.leave()
	}
}

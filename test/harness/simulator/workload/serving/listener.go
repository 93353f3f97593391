package serving

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// listener records accepted connections, so that reset can close all of them.
type listener struct {
	*net.TCPListener

	// at is its address.
	at netip.AddrPort

	mu     sync.Mutex
	closed bool
	only   func(netip.Addr) bool
	open   map[*connection]struct{}
}

func listen(at netip.AddrPort) (*listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	bound, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{TCPListener: l, at: bound, open: map[*connection]struct{}{}}, nil
}

// connection removes itself from its listener when it is closed.
type connection struct {
	*net.TCPConn

	from *listener
}

func (c *connection) Close() error {
	c.from.mu.Lock()
	delete(c.from.open, c)
	c.from.mu.Unlock()
	return c.TCPConn.Close()
}

// Accept resets connections from clients that are not admitted, which looks like a rejection by
// nftables.
func (l *listener) Accept() (net.Conn, error) {
	for {
		tcp, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		c := &connection{TCPConn: tcp, from: l}
		if l.keep(c) {
			return c, nil
		}
		abort(tcp)
	}
}

func (l *listener) keep(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || (l.only != nil && !l.only(peer(c.TCPConn))) {
		return false
	}
	l.open[c] = struct{}{}
	return true
}

func (l *listener) admit(only func(netip.Addr) bool) {
	l.mu.Lock()
	l.only = only
	l.mu.Unlock()
	if only != nil {
		l.reset(only)
	}
}

// reset resets all connections that are not admitted. If only is nil, it resets all, and the
// listener accepts no further ones.
func (l *listener) reset(only func(netip.Addr) bool) {
	l.mu.Lock()
	l.closed = l.closed || only == nil
	var gone []*connection
	for c := range l.open {
		if only == nil || !only(peer(c.TCPConn)) {
			gone = append(gone, c)
			delete(l.open, c)
		}
	}
	l.mu.Unlock()
	for _, c := range gone {
		abort(c.TCPConn)
	}
}

// abort closes the connection with a TCP reset, so that the peer fails at once.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func peer(c *net.TCPConn) netip.Addr {
	address, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr().Unmap()
}

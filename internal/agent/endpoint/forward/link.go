package forward

import (
	"io"
	"net"
	"sync"
)

// link is a connection of a program with its connection to a backend.
type link struct {
	client net.Conn
	// address is the backend's, blank before there is one. The Forwarder's lock protects
	// it.
	address string

	mu      sync.Mutex
	backend net.Conn
	closed  bool
}

// connected gives the link its backend. It returns false if the link was closed.
func (l *link) connected(backend net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.backend = backend
	return true
}

// carry copies in both directions until both have ended. The end of one direction is
// passed on; an error ends both with a reset, so that nobody takes it for an orderly end.
func (l *link) carry() {
	var copies sync.WaitGroup
	copies.Go(func() { l.copy(l.backend, l.client) })
	l.copy(l.client, l.backend)
	copies.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		_ = l.client.Close()
		_ = l.backend.Close()
	}
}

func (l *link) copy(to, from net.Conn) {
	// Between two TCP connections, the kernel copies.
	_, err := io.Copy(to, from)
	if writer, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		err = writer.CloseWrite()
	}
	if err != nil {
		l.close()
	}
}

// close resets both connections. It may be repeated.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	reset(l.client)
	if l.backend != nil {
		reset(l.backend)
	}
}

// reset closes a connection such that its peer sees an error.
func reset(conn net.Conn) {
	if connection, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = connection.SetLinger(0)
	}
	_ = conn.Close()
}

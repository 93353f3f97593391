package frontend

import (
	"net"
	"net/netip"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
)

// limited is a listener that closes connections beyond its limits at once.
type limited struct {
	net.Listener

	max, maxOfSource int
	metrics          *metrics

	mu      sync.Mutex
	open    int
	sources map[netip.Prefix]int
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err // net/http tries again after temporary errors
		}
		source := ratelimit.SourceOf(accepted.RemoteAddr().String())
		if l.add(source) {
			return &conn{Conn: accepted, closed: sync.OnceFunc(func() { l.remove(source) })}, nil
		}
		l.metrics.refused.Inc()
		_ = accepted.Close()
	}
}

func (l *limited) add(source netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.max || l.sources[source] >= l.maxOfSource {
		return false
	}
	l.open++
	l.sources[source]++
	l.metrics.connections.Inc()
	return true
}

func (l *limited) remove(source netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.sources[source]--; l.sources[source] == 0 {
		delete(l.sources, source)
	}
	l.metrics.connections.Dec()
}

// conn is an accepted connection.
type conn struct {
	net.Conn

	closed func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}

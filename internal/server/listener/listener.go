package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/pires/go-proxyproto"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
)

// retryFull is how often a connection looks for a place when all handshakes are in use
// and none ends.
const retryFull = 100 * time.Millisecond

// Options of a Listener.
type Options struct {
	// Inner accepts the TCP connections.
	Inner net.Listener
	TLS   *tls.Config
	// Limiter limits new connections of one source.
	Limiter *ratelimit.Limiter
	// Connections bounds what they hold open.
	Connections *Connections
	// Known reports whether a key is that of a host that may call. It is asked once a
	// connection, after the handshake.
	Known func(ctx context.Context, fingerprint string) bool
	// Proxies are the networks whose connections must begin with a PROXY protocol header,
	// which has the addresses of caller and server. No other connection may have one.
	Proxies []netip.Prefix
	// MaxProxied bounds the connections of proxies whose header is awaited or that wait for
	// a handshake.
	MaxProxied int
	// HandshakeTimeout bounds one handshake, and before it the PROXY protocol header.
	HandshakeTimeout time.Duration
	Logger           logr.Logger
}

// Listener is a net.Listener whose connections have completed their TLS handshake.
// Connections over the limit of all sources wait in the operating system's queue, unless
// one takes the place of another. Connections over the limit of one source are closed,
// because otherwise a source could block all others with handshakes that it does not
// continue.
//
// The HTTP server does not make the handshakes, because they need a deep stack, which a
// goroutine keeps: the server's goroutine lives as long as the connection, and every idle
// host would cost another 8 KiB.
type Listener struct {
	net.Listener
	config      *tls.Config
	limiter     *ratelimit.Limiter
	connections *Connections
	known       func(ctx context.Context, fingerprint string) bool
	proxies     []netip.Prefix
	timeout     time.Duration
	logger      logr.Logger

	// computing holds one entry for each handshake that is not waiting for its peer, proxied
	// one for each connection of a proxy that has no handshake yet.
	computing chan struct{}
	proxied   chan struct{}

	ready  chan net.Conn
	closed chan struct{}
	once   sync.Once
	// closeErr is returned by Accept after closed was closed, and set before.
	closeErr error
}

// New returns a Listener. Run must be called.
func New(o Options) *Listener {
	return &Listener{
		Listener: o.Inner, config: o.TLS, limiter: o.Limiter, connections: o.Connections, known: o.Known, proxies: o.Proxies,
		timeout: o.HandshakeTimeout, logger: o.Logger,
		computing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), proxied: make(chan struct{}, max(1, o.MaxProxied)),
		ready: make(chan net.Conn), closed: make(chan struct{}),
	}
}

// Run accepts connections until the listener is closed or fails. It returns when no
// handshake is in progress.
func (l *Listener) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		inner, err := l.accept()
		if err != nil {
			l.shutDown(err)
			return
		}
		if l.isProxy(inner.RemoteAddr()) {
			select {
			case l.proxied <- struct{}{}:
			case <-l.closed:
				_ = inner.Close()
				continue
			}
			group.Go(func() {
				// A read that waits would otherwise delay the end.
				stop := l.closeWithListener(inner)
				from := l.admitProxied(inner)
				stop()
				<-l.proxied
				l.serve(ctx, from)
			})
			continue
		}
		if from := l.admit(inner); from != nil {
			group.Go(func() { l.serve(ctx, from) })
		}
	}
}

// accept returns the next connection.
func (l *Listener) accept() (net.Conn, error) {
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		conn, err := l.Listener.Accept()
		if temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); ok && temporary.Temporary() {
			// For example, too many files are open.
			l.logger.Error(err, "Connections can't be accepted, trying again")
			select {
			case <-time.After(pause):
			case <-l.closed:
			}
			pause = min(2*pause, last)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("accepting a connection: %w", err)
		}
		return conn, nil
	}
}

// isProxy reports whether a connection of this peer begins with a PROXY protocol header.
func (l *Listener) isProxy(peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return false
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, proxy := range l.proxies {
		if proxy.Contains(address) {
			return true
		}
	}
	return false
}

// admitProxied is admit for a connection that begins with a PROXY protocol header.
func (l *Listener) admitProxied(inner net.Conn) *conn {
	proxied := proxyproto.NewConn(inner, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(l.timeout))
	if proxied.ProxyHeader() == nil {
		l.logger.V(4).Info("A proxy sent no valid PROXY protocol header", "proxy", inner.RemoteAddr().String())
		_ = inner.Close()
		return nil
	}
	return l.admit(proxied)
}

// admit waits until the connection may begin its handshake. If its source has too many, or
// the listener is closed, admit closes the connection and returns nil.
func (l *Listener) admit(inner net.Conn) *conn {
	from := l.connections.newConn(inner, l.computing)
	if !l.limiter.Allow(inner.RemoteAddr().String()) {
		l.refuse(from)
		return nil
	}
	for {
		switch l.connections.begin(from) {
		case admitted:
			return from
		case full:
			if !l.waitForPlace() {
				_ = from.Close()
				return nil
			}
		case refused:
			l.refuse(from)
			return nil
		}
	}
}

// waitForPlace waits until a handshake has ended or may have become evictable. It returns
// false if the listener is closed.
func (l *Listener) waitForPlace() bool {
	timer := time.NewTimer(retryFull)
	defer timer.Stop()
	select {
	case <-l.connections.freed:
	case <-timer.C:
	case <-l.closed:
		return false
	}
	return true
}

func (l *Listener) refuse(from *conn) {
	l.connections.metrics.refused.Inc()
	_ = from.Close()
}

// serve makes the handshake of a connection and passes it to Accept. from may be nil.
func (l *Listener) serve(ctx context.Context, from *conn) {
	if from == nil {
		return
	}
	secure := l.handshake(ctx, from)
	if secure == nil {
		return
	}
	select {
	case l.ready <- secure:
	case <-l.closed:
		_ = secure.Close()
	}
}

// closeWithListener closes a connection when the listener is closed, until stop is called.
func (l *Listener) closeWithListener(inner net.Conn) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-l.closed:
			_ = inner.Close()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.ready:
		return conn, nil
	case <-l.closed:
		return nil, l.closeErr
	}
}

// shutDown makes Accept return err and closes connections whose handshake is in progress.
func (l *Listener) shutDown(err error) {
	l.once.Do(func() {
		l.closeErr = err
		close(l.closed)
	})
	l.connections.shutDown()
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.shutDown(net.ErrClosed)
	return l.Listener.Close()
}

package forward

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	// dialTimeout bounds a connection to one backend.
	dialTimeout = 2 * time.Second
	// maxConnections bounds the connections of this host's programs. A kubelet has a few. Each takes six open files.
	maxConnections = 1024
	// acceptPause follows an error of Accept, such as too many open files.
	acceptPause = 100 * time.Millisecond
)

// Options are what a Forwarder works with.
type Options struct {
	// Own returns the address of the host's own API server, host:port; blank if it
	// has none. It is called for each connection.
	Own func() string
	// Check requests /readyz of a backend. It returns nil if the backend answers, and if
	// the host can't tell.
	Check func(ctx context.Context, backend string) error
	// Dial connects to a backend.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Confirm reports whether a client is sent Accepted as soon as a backend has accepted its
	// connection. nil means that none is.
	Confirm func(client net.Conn) bool
	Clock   retry.Clock
	Log     *slog.Logger
}

// Forwarder forwards connections. Use New. Its methods may be called concurrently.
type Forwarder struct {
	o Options
	// dialing ends with Close.
	dialing context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	backends backends
	links    map[*link]struct{}
	closed   bool
	// failing is true from a connection that no backend took to the next one that was
	// taken.
	failing bool
}

// New returns a Forwarder without backends. Close must be called.
func New(o Options) *Forwarder {
	f := &Forwarder{o: o, backends: backends{failures: map[string]int{}}, links: map[*link]struct{}{}}
	f.dialing, f.stop = context.WithCancel(context.Background())
	return f
}

// SetBackends replaces the API servers of other hosts, host:port each. Connections to
// those that are gone are closed.
func (f *Forwarder) SetBackends(planned []string) {
	own := f.o.Own()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backends.set(planned, own)
	f.dropRemoved(own)
}

// Accept forwards the connections of a listener until that is closed. The listener is the
// caller's.
func (f *Forwarder) Accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			f.o.Log.Warn("Could not accept a connection", "error", err)
			if f.o.Clock.Wait(f.dialing, acceptPause) != nil {
				return
			}
		default:
			f.forward(conn)
		}
	}
}

// Connections returns how many connections are open or wait for a backend.
func (f *Forwarder) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.links)
}

// Wait waits until all connections have ended. Nothing may call Accept any more.
func (f *Forwarder) Wait() { f.running.Wait() }

// Close closes all connections and waits for their end. Later ones are refused.
func (f *Forwarder) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.mu.Lock()
	for l := range f.links {
		l.close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// forward takes a connection that was accepted.
func (f *Forwarder) forward(client net.Conn) {
	l := &link{client: client}
	f.mu.Lock()
	refused := f.closed || len(f.links) >= maxConnections
	if !refused {
		f.links[l] = struct{}{}
		f.running.Add(1)
	}
	f.mu.Unlock()
	if refused {
		reset(client)
		return
	}
	go func() {
		defer f.running.Done()
		defer f.remove(l)
		if f.connect(l) && f.confirm(client) {
			l.carry()
		}
		l.close()
	}()
}

// confirm returns false if the client has gone.
func (f *Forwarder) confirm(client net.Conn) bool {
	if f.o.Confirm == nil || !f.o.Confirm(client) {
		return true
	}
	_, err := client.Write([]byte{Accepted})
	return err == nil
}

func (f *Forwarder) remove(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links, l)
}

// connect connects a link to the first backend that accepts.
func (f *Forwarder) connect(l *link) bool {
	own := f.o.Own()
	f.mu.Lock()
	order := f.backends.order(own)
	f.mu.Unlock()
	var failures []error
	for _, address := range order {
		ctx, cancel := f.withTimeout(dialTimeout)
		conn, err := f.o.Dial(ctx, "tcp", address)
		cancel()
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if f.use(l, address, conn) {
			return true
		}
	}
	f.mu.Lock()
	isNew := !f.failing && !f.closed
	f.failing = true
	f.mu.Unlock()
	if isNew {
		f.o.Log.Warn("No API server of the cluster accepts connections", "backends", order, "error", errors.Join(failures...))
	}
	return false
}

// use makes a connection the link's. It returns false, and closes the connection, if the
// backend was removed meanwhile.
func (f *Forwarder) use(l *link, address string, conn net.Conn) bool {
	own := f.o.Own()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.backends.has(address, own) {
		reset(conn)
		return false
	}
	l.address = address
	if !l.connected(conn) {
		reset(conn)
		return false
	}
	if f.backends.last != address {
		f.o.Log.Info("Forwarding to another API server", "backend", address)
		f.backends.last = address
	}
	if address != own {
		f.backends.good = address
	}
	f.failing = false
	return true
}

// dropRemoved closes the connections to backends that are gone. The lock is held.
func (f *Forwarder) dropRemoved(own string) {
	for l := range f.links {
		if l.address != "" && !f.backends.has(l.address, own) {
			l.close()
		}
	}
}

// withTimeout is context.WithTimeout with the Forwarder's clock.
func (f *Forwarder) withTimeout(d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(f.dialing)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if f.o.Clock.Wait(ctx, d) == nil {
			cancel(context.DeadlineExceeded)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-over
	}
}

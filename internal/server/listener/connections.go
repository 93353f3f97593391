package listener

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

const (
	// handshakeStay is how long a silent handshake is safe from newcomers whose source has
	// as many: longer than honest peers are silent.
	handshakeStay = time.Second
	// authenticateTimeout closes connections that are not authenticated by then. An
	// enrolment takes up to 45 s.
	authenticateTimeout = 2 * time.Minute
	// maxPerKey bounds the connections of one key. An agent has one, a second one for its
	// tunnel, and for some minutes those that its network has cut silently.
	maxPerKey = 16
)

// ConnectionsOptions are the options of Connections.
type ConnectionsOptions struct {
	Clock  clock.PassiveClock
	Timers *timer.Queue
	// MaxHandshakes bounds concurrent handshakes. One source may have half of them.
	MaxHandshakes int
	// MaxUnauthenticated bounds connections that have used no key of a known host. One
	// source may have three quarters of them, so that many new hosts behind one NAT can
	// enrol at once.
	MaxUnauthenticated int
	Metrics            *Metrics
}

// Connections bounds what callers can hold open. A connection is unauthenticated until it
// has used the key of a known host; only authenticated ones are not bounded in all, but 16
// for each key. When there are too many others, a newcomer takes the place of the source
// that has the most. It is safe for concurrent use.
type Connections struct {
	clock   clock.PassiveClock
	timers  *timer.Queue
	metrics *Metrics
	// freed receives a value when a handshake has ended.
	freed chan struct{}

	mu sync.Mutex
	// shut: no further handshake begins.
	shut            bool
	handshakes      *pool
	unauthenticated *pool
	// keys has the authenticated connections of each key, the oldest first.
	keys map[string][]*conn
	// sources counts the authenticated connections of each source.
	sources map[netip.Prefix]int
}

// NewConnections returns Connections.
func NewConnections(o ConnectionsOptions) *Connections {
	c := &Connections{
		clock: o.Clock, timers: o.Timers, metrics: o.Metrics, freed: make(chan struct{}, 1),
		handshakes: newPool(o.MaxHandshakes, handshakeStay, func(c *conn) (time.Time, bool) {
			return c.silentSince, !c.silentSince.IsZero()
		}),
		unauthenticated: newPool(o.MaxUnauthenticated, authenticateTimeout, func(c *conn) (time.Time, bool) {
			return c.accepted, true
		}),
		keys: map[string][]*conn{}, sources: map[netip.Prefix]int{},
	}
	c.unauthenticated.perSource = max(1, o.MaxUnauthenticated*3/4)
	return c
}

// connectionKey is the context key of the connection of an HTTP request.
type connectionKey struct{}

// WithConnection returns a context for the HTTP requests of a connection that a Listener
// returned.
func (c *Connections) WithConnection(ctx context.Context, from net.Conn) context.Context {
	if secure, ok := from.(*tls.Conn); ok {
		if inner, ok := secure.NetConn().(*conn); ok {
			return context.WithValue(ctx, connectionKey{}, inner)
		}
	}
	return ctx
}

// Authenticated reports whether the connection of an HTTP request has used the key of a
// known host.
func (c *Connections) Authenticated(ctx context.Context) bool {
	from, ok := ctx.Value(connectionKey{}).(*conn)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return from.state == authenticated
}

// SetAuthenticated records whether the key of an HTTP request's connection is that of a
// known host.
func (c *Connections) SetAuthenticated(ctx context.Context, is bool) {
	from, ok := ctx.Value(connectionKey{}).(*conn)
	if !ok || c.Authenticated(ctx) == is {
		return
	}
	c.classify(from, is)
}

// begin registers a handshake, unless the verdict is another than admitted.
func (c *Connections) begin(from *conn) verdict {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return refused
	}
	victim, v := c.handshakes.add(from, c.sources[from.source] > 0, c.clock.Now())
	if v == admitted {
		from.state = handshaking
	}
	c.forget(victim)
	c.mu.Unlock()
	c.evict(victim, "handshake")
	return v
}

// established registers the connection after its handshake. It reports whether the
// connection may stay; otherwise it is closed.
func (c *Connections) established(from *conn, key string, known bool) bool {
	c.mu.Lock()
	from.key = key
	c.mu.Unlock()
	return c.classify(from, known)
}

// classify makes a connection an authenticated or unauthenticated one, which closes
// another or the connection itself if there are too many.
func (c *Connections) classify(from *conn, known bool) bool {
	c.mu.Lock()
	if from.state == closed {
		c.mu.Unlock()
		return false
	}
	c.leave(from)
	var victim *conn
	reason, stays := "key", true
	if known {
		from.state = authenticated
		c.sources[from.source]++
		c.keys[from.key] = append(c.keys[from.key], from)
		if of := c.keys[from.key]; len(of) > maxPerKey {
			victim = of[0]
			c.leave(victim)
		}
	} else {
		var v verdict
		reason = "unauthenticated"
		if victim, v = c.unauthenticated.add(from, false, c.clock.Now()); v == admitted {
			from.state = unauthenticated
			from.deadline = c.timers.At(c.clock.Now().Add(authenticateTimeout), func() { c.expire(from) })
		} else {
			from.state, stays = closed, false
		}
	}
	c.forget(victim)
	c.metrics.unauthenticated.Set(float64(c.unauthenticated.count))
	c.mu.Unlock()
	c.evict(victim, reason)
	if !stays {
		c.evict(from, reason)
	}
	return stays
}

// expire closes a connection that has not been authenticated in time.
func (c *Connections) expire(from *conn) {
	c.mu.Lock()
	late := from.state == unauthenticated
	c.mu.Unlock()
	if late {
		c.evict(from, "unauthenticated")
	}
}

// end forgets a connection that is closed.
func (c *Connections) end(from *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(from)
	from.state = closed
}

// forget marks a victim as closed, which a pool has removed.
func (c *Connections) forget(victim *conn) {
	if victim == nil {
		return
	}
	if victim.deadline != nil {
		c.timers.Cancel(victim.deadline)
	}
	victim.state, victim.deadline = closed, nil
}

// leave removes the connection from where it is counted.
func (c *Connections) leave(from *conn) {
	switch from.state {
	case handshaking:
		c.handshakes.remove(from)
		select {
		case c.freed <- struct{}{}:
		default:
		}
	case unauthenticated:
		c.unauthenticated.remove(from)
		c.timers.Cancel(from.deadline)
		from.deadline = nil
	case authenticated:
		c.keys[from.key] = slices.DeleteFunc(c.keys[from.key], func(other *conn) bool { return other == from })
		if len(c.keys[from.key]) == 0 {
			delete(c.keys, from.key)
		}
		if c.sources[from.source]--; c.sources[from.source] == 0 {
			delete(c.sources, from.source)
		}
	case accepted, closed:
	}
	from.state = accepted
	c.metrics.unauthenticated.Set(float64(c.unauthenticated.count))
}

// evict closes a connection that has lost its place.
func (c *Connections) evict(victim *conn, reason string) {
	if victim == nil {
		return
	}
	c.metrics.evicted.WithLabelValues(reason).Inc()
	_ = victim.Close()
}

func (c *Connections) setSilent(from *conn, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from.silentSince = time.Time{}
	if is {
		from.silentSince = c.clock.Now()
	}
}

// shutDown closes the connections whose handshakes are in progress.
func (c *Connections) shutDown() {
	c.mu.Lock()
	c.shut = true
	var open []*conn
	for _, g := range c.handshakes.groups {
		for e := g.conns.Front(); e != nil; e = e.Next() {
			if from, ok := e.Value.(*conn); ok {
				open = append(open, from)
			}
		}
	}
	c.mu.Unlock()
	for _, from := range open {
		_ = from.Close()
	}
}

// newConn returns a connection that is not counted yet.
func (c *Connections) newConn(inner net.Conn, computing chan struct{}) *conn {
	return &conn{
		Conn: inner, owner: c, source: ratelimit.SourceOf(inner.RemoteAddr().String()), accepted: c.clock.Now(), computing: computing,
	}
}

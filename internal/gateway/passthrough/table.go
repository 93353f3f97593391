package passthrough

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// phase of a connection.
type phase int

const (
	// reading: its ClientHello is being read.
	reading phase = iota
	// deciding: the router is asked, or has refused; or the ClientHello is invalid.
	deciding
	// copying: it was routed.
	copying
	// closed: it is not counted any more.
	closed
)

// conn is an accepted connection.
type conn struct {
	net.Conn
	source netip.Prefix
	// cancel ends the context of its dial.
	cancel context.CancelCauseFunc

	// The following belongs to the table.

	phase phase
	// place is the connection's element in its source.
	place *list.Element
	// late ends the reading of the ClientHello, refuse closes the connection unless it was
	// routed.
	late, refuse *timer.Entry
	// upstream is the connection to the cluster, once it was routed.
	upstream net.Conn
}

// hangUp closes the connection after it was removed from the table. A connection that was
// not routed is reset: otherwise the answer would depend on how much of it was read.
func (c *conn) hangUp() {
	if c.upstream != nil {
		_ = c.upstream.Close()
	} else if tcp, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// source has the connections of one source address.
type source struct {
	count int
	// unrouted has the oldest connection in front.
	unrouted list.List
}

// table has all open connections, and bounds them. It is safe for concurrent use.
type table struct {
	clock  clock.PassiveClock
	timers *timer.Queue
	limits limits

	helloTimeout, refuseAfter time.Duration
	metrics                   *metrics
	// empty is closed when the table drains and has no connection.
	empty chan struct{}

	mu       sync.Mutex
	draining bool
	open     map[*conn]struct{}
	unrouted int
	sources  map[netip.Prefix]*source
}

// limits of connections: of all, and of one source.
type limits struct {
	all, ofSource              int
	unrouted, unroutedOfSource int
}

// add adds an accepted connection, or returns why it can't. If there are too many that are
// not routed, it takes the place of the oldest one of the source that has the most, if that
// source has more than its own.
func (t *table) add(inner net.Conn, cancel context.CancelCauseFunc) (*conn, error) {
	c := &conn{Conn: inner, cancel: cancel, source: ratelimit.SourceOf(inner.RemoteAddr().String())}
	t.mu.Lock()
	victim, err := t.admit(c)
	t.measure()
	t.mu.Unlock()
	if victim != nil {
		victim.hangUp()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// admit is add with the lock. The caller has to hang up the victim.
func (t *table) admit(c *conn) (victim *conn, err error) {
	if t.draining {
		return nil, &refusal{outcome: draining}
	}
	s := t.sources[c.source]
	if s == nil {
		s = &source{}
	}
	if len(t.open) >= t.limits.all || s.count >= t.limits.ofSource || s.unrouted.Len() >= t.limits.unroutedOfSource {
		return nil, &refusal{outcome: tooMany}
	}
	if t.unrouted >= t.limits.unrouted {
		if victim = t.victim(s.unrouted.Len()); victim == nil {
			return nil, &refusal{outcome: tooMany}
		}
		t.end(victim, displaced)
	}
	t.sources[c.source] = s // the victim may have been its last
	t.open[c] = struct{}{}
	s.count++
	t.unrouted++
	c.place = s.unrouted.PushBack(c)
	now := t.clock.Now()
	c.late = t.timers.At(now.Add(t.helloTimeout), func() { t.stopReading(c) })
	c.refuse = t.timers.At(now.Add(t.refuseAfter), func() { t.close(c, dialTimeout) })
	return victim, nil
}

// victim returns the oldest unrouted connection of the source that has the most, if that
// source would still have as many as the newcomer's.
func (t *table) victim(newcomers int) *conn {
	var largest *source
	for _, s := range t.sources {
		if largest == nil || s.unrouted.Len() > largest.unrouted.Len() {
			largest = s
		}
	}
	if largest == nil || largest.unrouted.Len() <= newcomers+1 {
		return nil
	}
	victim, _ := largest.unrouted.Front().Value.(*conn)
	return victim
}

// stopReading makes the reading of a ClientHello fail.
func (t *table) stopReading(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.phase == reading {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // any time that is over
	}
}

// read ends the reading of the ClientHello.
func (t *table) read(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.phase != reading {
		return
	}
	c.phase = deciding
	t.timers.Cancel(c.late)
	_ = c.SetReadDeadline(time.Time{})
}

// route makes a connection a routed one. It returns false if the connection is closed.
func (t *table) route(c *conn, upstream net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.phase != deciding {
		return false
	}
	t.decided(c)
	c.phase, c.upstream = copying, upstream
	t.measure()
	return true
}

// close closes a connection. The outcome is the cause of the end of its dial.
func (t *table) close(c *conn, why outcome) {
	t.mu.Lock()
	ended := t.end(c, why)
	t.measure()
	t.mu.Unlock()
	if ended {
		c.hangUp()
	}
}

// drain refuses further connections and closes those that are not routed.
func (t *table) drain() { t.closeEach(func(c *conn) bool { return c.phase != copying }) }

// closeAll refuses further connections and closes all.
func (t *table) closeAll() { t.closeEach(func(*conn) bool { return true }) }

func (t *table) closeEach(which func(*conn) bool) {
	var ended []*conn
	t.mu.Lock()
	t.draining = true
	for c := range t.open {
		if which(c) && t.end(c, draining) {
			ended = append(ended, c)
		}
	}
	t.signal()
	t.measure()
	t.mu.Unlock()
	for _, c := range ended {
		c.hangUp()
	}
}

// end removes a connection. It needs the lock. If it returns true, the caller has to hang up
// after it has released the lock.
func (t *table) end(c *conn, why outcome) bool {
	if c.phase == closed {
		return false
	}
	if c.phase != copying {
		t.decided(c)
	}
	if c.phase == reading && why == dialTimeout {
		why = tooSlow
	}
	c.phase = closed
	c.cancel(&refusal{outcome: why})
	delete(t.open, c)
	s := t.sources[c.source]
	if s.count--; s.count == 0 {
		delete(t.sources, c.source)
	}
	t.signal()
	return true
}

// decided removes a connection from the unrouted ones. It needs the lock.
func (t *table) decided(c *conn) {
	t.sources[c.source].unrouted.Remove(c.place)
	c.place = nil
	t.unrouted--
	t.timers.Cancel(c.late)
	t.timers.Cancel(c.refuse)
}

// signal closes empty once. It needs the lock.
func (t *table) signal() {
	if !t.draining || len(t.open) > 0 {
		return
	}
	select {
	case <-t.empty:
	default:
		close(t.empty)
	}
}

// measure sets the gauges. It needs the lock.
func (t *table) measure() {
	t.metrics.unrouted.Set(float64(t.unrouted))
	t.metrics.routed.Set(float64(len(t.open) - t.unrouted))
}

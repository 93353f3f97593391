package listener

import (
	"container/heap"
	"container/list"
	"net/netip"
	"time"
)

// pool bounds the connections that are in one state, in all and of each source. Use
// newPool. It needs a lock of its caller.
type pool struct {
	limit, perSource int
	// stay is how long a connection is safe from newcomers whose source has as many.
	stay time.Duration
	// evictable reports whether a connection may be closed for another, and since when.
	evictable func(*conn) (since time.Time, ok bool)

	count   int
	groups  map[netip.Prefix]*group
	largest groupHeap
}

// group is the connections of one source in a pool.
type group struct {
	source netip.Prefix
	// preferred: the source had an authenticated connection when the group was made.
	preferred bool
	// conns has the oldest connection in front.
	conns list.List
	index int
}

// verdict is whether a pool has room for a connection.
type verdict int

const (
	// admitted: the connection is in the pool.
	admitted verdict = iota
	// full: all connections together have reached the limit.
	full
	// refused: the source has reached its own limit.
	refused
)

func newPool(limit int, stay time.Duration, evictable func(*conn) (time.Time, bool)) *pool {
	return &pool{
		limit: limit, perSource: max(1, limit/2), stay: stay, evictable: evictable, groups: map[netip.Prefix]*group{},
	}
}

// add adds a connection. If the pool is full, the connection may take the place of a
// victim, which the caller has to close: of the source with the most connections, the
// oldest one that is evictable. The victim's source has more connections than the
// newcomer's, or is not preferred while the newcomer's is, or the victim has had its time.
func (p *pool) add(c *conn, preferred bool, now time.Time) (victim *conn, v verdict) {
	g := p.groups[c.source]
	had := 0
	if g != nil {
		had, preferred = g.conns.Len(), g.preferred
	}
	if had >= p.perSource {
		return nil, refused
	}
	if p.count >= p.limit {
		if victim = p.victim(had, preferred, now); victim == nil {
			return nil, full
		}
		p.remove(victim)
		g = p.groups[c.source] // the victim may have been its last
	}
	if g == nil {
		g = &group{source: c.source, preferred: preferred}
		p.groups[c.source] = g
		c.place = g.conns.PushBack(c)
		heap.Push(&p.largest, g)
	} else {
		c.place = g.conns.PushBack(c)
		heap.Fix(&p.largest, g.index)
	}
	p.count++
	return victim, admitted
}

// victim returns the connection that a newcomer may replace, or nil.
func (p *pool) victim(had int, preferred bool, now time.Time) *conn {
	if len(p.largest) == 0 {
		return nil
	}
	g := p.largest[0]
	for e := g.conns.Front(); e != nil; e = e.Next() {
		c, ok := e.Value.(*conn)
		if !ok {
			continue
		}
		since, ok := p.evictable(c)
		if !ok {
			continue
		}
		higher := preferred && !g.preferred
		larger := preferred == g.preferred && g.conns.Len() > had+1
		if higher || larger || now.Sub(since) >= p.stay {
			return c
		}
	}
	return nil
}

// remove removes a connection that is in the pool.
func (p *pool) remove(c *conn) {
	g := p.groups[c.source]
	g.conns.Remove(c.place)
	c.place = nil
	p.count--
	if g.conns.Len() == 0 {
		heap.Remove(&p.largest, g.index)
		delete(p.groups, c.source)
		return
	}
	heap.Fix(&p.largest, g.index)
}

// groupHeap has the group in front that loses a connection first.
type groupHeap []*group

// Len implements heap.Interface.
func (h groupHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h groupHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.preferred != b.preferred {
		return !a.preferred
	}
	if a.conns.Len() != b.conns.Len() {
		return a.conns.Len() > b.conns.Len()
	}
	return oldest(a).Before(oldest(b))
}

// Swap implements heap.Interface.
func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *groupHeap) Push(x any) {
	if g, ok := x.(*group); ok {
		g.index = len(*h)
		*h = append(*h, g)
	}
}

// Pop implements heap.Interface.
func (h *groupHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// oldest returns when the oldest connection of the group was accepted.
func oldest(g *group) time.Time {
	if e := g.conns.Front(); e != nil {
		if c, ok := e.Value.(*conn); ok {
			return c.accepted
		}
	}
	return time.Time{}
}

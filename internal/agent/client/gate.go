package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrBusy is returned by HandOver when it is not yet the time to change to
// another client. Nothing was changed.
var ErrBusy = errors.New("requests of the old key may still be under way")

// gate knows which calls are under way, and holds back new ones while a client
// hands over to the next.
type gate struct {
	mu    sync.Mutex
	calls int
	// ended is closed when the last call under way ends; nil while nobody waits
	// for that.
	ended chan struct{}
	// shut is closed when calls may begin again; nil while they may.
	shut chan struct{}
	// next makes all calls once it is set.
	next *Client
	// unanswered is when a request was last given up without an answer: it may
	// reach the server yet.
	unanswered time.Time
	// before is the gate of the client that this one followed; calls that began
	// there may still be under way.
	before *gate
}

// enter waits until a call may begin. It returns the client that is to make the
// call instead, or nil and then leave has to be called.
func (g *gate) enter(ctx context.Context) (next *Client, err error) {
	for {
		g.mu.Lock()
		shut := g.shut
		if shut == nil {
			if next = g.next; next == nil {
				g.calls++
			}
			g.mu.Unlock()
			return next, nil
		}
		g.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	if g.calls == 0 && g.ended != nil {
		close(g.ended)
		g.ended = nil
	}
}

// noAnswer remembers that a request may have been sent and was not answered.
func (g *gate) noAnswer(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unanswered = now
}

// drain holds back new calls and waits for those under way.
func (g *gate) drain(ctx context.Context) error {
	g.mu.Lock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
	before := g.before
	ended := g.ended
	if g.calls > 0 && ended == nil {
		ended = make(chan struct{})
		g.ended = ended
	}
	g.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			return ErrBusy
		}
	}
	if before == nil {
		return nil
	}
	return before.drain(ctx)
}

// reopen lets calls begin again, by next if there is one.
func (g *gate) reopen(next *Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
	if next != nil {
		g.next = next
	}
	if g.before != nil {
		g.before.reopen(nil)
	}
}

// quietSince is when a request was last given up, here or by a client that this
// one followed.
func (g *gate) quietSince() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.before == nil {
		return g.unanswered
	}
	return latest(g.unanswered, g.before.quietSince())
}

// HandOver has next make all calls from now on. It holds back new calls, waits
// until those under way have been answered, runs commit, and closes this
// client's connections before next is used: a server never sees a request of
// this client after one of next.
//
// A request that was sent and given up may be on its way for as long as
// settleTime; HandOver returns ErrBusy unless this client has been quiet for
// longer, or if calls under way don't end before ctx does. An error of commit
// is returned as it is, and then nothing is handed over. HandOver and Follow
// must not be called at the same time.
func (c *Client) HandOver(ctx context.Context, next *Client, commit func() error) error {
	err := c.gate.drain(ctx)
	if err == nil && !c.Settled() {
		err = ErrBusy
	}
	if err == nil {
		err = commit()
	}
	if err != nil {
		c.gate.reopen(nil)
		return err
	}
	c.Close()
	c.gate.reopen(next)
	return nil
}

// Follow has next, which has the same key, make all calls that begin from now
// on. Calls under way go on.
func (c *Client) Follow(next *Client) {
	next.gate.mu.Lock()
	next.gate.before = &c.gate
	next.gate.mu.Unlock()
	c.gate.reopen(next)
	c.Close()
}

// Settled reports whether HandOver would not be refused because of requests
// that were given up.
func (c *Client) Settled() bool { return c.clock.now().Sub(c.gate.quietSince()) > settleTime }

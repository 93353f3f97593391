package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrBusy is the error of HandOver while requests may be under way. Nothing was changed.
var ErrBusy = errors.New("requests with the old key may still be under way")

// callBarrier counts the calls under way, and blocks new ones while a client hands over
// to the next.
type callBarrier struct {
	mu    sync.Mutex
	calls int
	// ended is closed when the last call under way ends; nil if drain does not wait.
	ended chan struct{}
	// blocked is closed when calls may begin again; nil if they may.
	blocked chan struct{}
	// next makes all calls if it is not nil.
	next *Client
	// abandonedAt is when a request was last abandoned without an answer. It may still
	// reach the server.
	abandonedAt time.Time
	// former is the barrier of the client that this one follows. Calls that began there
	// may still be under way.
	former *callBarrier
}

// enter waits until a call may begin. It returns the client that must make the call
// instead, or nil; leave must be called then.
func (b *callBarrier) enter(ctx context.Context) (next *Client, err error) {
	for {
		b.mu.Lock()
		blocked := b.blocked
		if blocked == nil {
			if next = b.next; next == nil {
				b.calls++
			}
			b.mu.Unlock()
			return next, nil
		}
		b.mu.Unlock()
		select {
		case <-blocked:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (b *callBarrier) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	if b.calls == 0 && b.ended != nil {
		close(b.ended)
		b.ended = nil
	}
}

// recordAbandoned records that a request may have been sent and was not answered.
func (b *callBarrier) recordAbandoned(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.abandonedAt = now
}

// drain blocks new calls and waits for those under way.
func (b *callBarrier) drain(ctx context.Context) error {
	b.mu.Lock()
	if b.blocked == nil {
		b.blocked = make(chan struct{})
	}
	former := b.former
	ended := b.ended
	if b.calls > 0 && ended == nil {
		ended = make(chan struct{})
		b.ended = ended
	}
	b.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			return ErrBusy
		}
	}
	if former == nil {
		return nil
	}
	return former.drain(ctx)
}

// unblock lets calls begin again, made by next if it is not nil.
func (b *callBarrier) unblock(next *Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blocked != nil {
		close(b.blocked)
		b.blocked = nil
	}
	if next != nil {
		b.next = next
	}
	if b.former != nil {
		b.former.unblock(nil)
	}
}

// lastAbandoned is when a request was last abandoned, by this client or by those that it
// follows.
func (b *callBarrier) lastAbandoned() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.former == nil {
		return b.abandonedAt
	}
	return latest(b.abandonedAt, b.former.lastAbandoned())
}

// HandOver makes next make all calls from now on. It blocks new calls, waits until those
// under way have been answered, runs commit, and closes this client's connections before
// next is used. So a server never gets a request of this client after one of next.
//
// HandOver returns ErrBusy unless IsQuiet, or if calls under way do not end before ctx
// does. It returns an error of commit unchanged, and hands nothing over then. HandOver
// and Follow must not be called concurrently.
func (c *Client) HandOver(ctx context.Context, next *Client, commit func() error) error {
	err := c.barrier.drain(ctx)
	if err == nil && !c.IsQuiet() {
		err = ErrBusy
	}
	if err == nil {
		err = commit()
	}
	if err != nil {
		c.barrier.unblock(nil)
		return err
	}
	c.Close()
	c.barrier.unblock(next)
	return nil
}

// Follow makes next, which has the same key, make all calls that begin from now on. Calls
// under way continue.
func (c *Client) Follow(next *Client) {
	next.barrier.mu.Lock()
	next.barrier.former = &c.barrier
	next.barrier.mu.Unlock()
	c.barrier.unblock(next)
	c.Close()
}

// RecordAbandoned records that a request with this client's key, made by another client, may still
// reach a server. IsQuiet and HandOver count it as one of this client.
func (c *Client) RecordAbandoned() { c.barrier.recordAbandoned(c.clock.now()) }

// IsQuiet reports whether no abandoned request can still reach a server, which HandOver
// requires.
func (c *Client) IsQuiet() bool { return c.clock.now().Sub(c.barrier.lastAbandoned()) > quietTime }

package enrol

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// limiterTimeout leaves enough of an agent's request timeout for the enrolment itself.
	limiterTimeout = 15 * time.Second
	// limiterRetry is the earliest retry of an agent that waited until the timeout. Agents
	// add a random delay of up to the same length.
	limiterRetry = 5 * time.Second
)

// limiter bounds concurrent enrolments. Unbounded, the API server answers late, agents
// time out and retry, and none succeeds. A slot that becomes free goes to the waiting
// source that has the fewest. So a source can have all slots while nobody else enrols, and
// callers of another source wait for one enrolment only, however many wait before them.
type limiter struct {
	clock clock.Clock
	// draining is closed when the server stops.
	draining <-chan struct{}

	mu    sync.Mutex
	free  int
	slots map[netip.Prefix]int
	// waiting has the callers who wait, in the order of their arrival.
	waiting []*waiter
}

// waiter is a caller who waits for a slot.
type waiter struct {
	source netip.Prefix
	// granted is closed when the caller has a slot.
	granted chan struct{}
}

func newLimiter(c clock.Clock, limit int, draining <-chan struct{}) *limiter {
	return &limiter{clock: c, free: limit, slots: map[netip.Prefix]int{}, draining: draining}
}

// acquire waits for a slot for a caller of that source. The caller must call release.
func (l *limiter) acquire(ctx context.Context, source netip.Prefix) (release func(), err error) {
	release = func() { l.release(source) }
	w := l.takeOrWait(source)
	if w == nil {
		return release, nil
	}
	timeout := l.clock.NewTimer(limiterTimeout)
	defer timeout.Stop()
	select {
	case <-w.granted:
		return release, nil
	case <-timeout.C():
		err = problem.Busy(limiterRetry)
	case <-l.draining:
		err = problem.Draining()
	case <-ctx.Done():
		err = fmt.Errorf("waiting for others to enrol: %w", ctx.Err())
	}
	if !l.giveUp(w) {
		release()
	}
	return nil, err
}

// takeOrWait takes a free slot, or returns the waiter for one.
func (l *limiter) takeOrWait(source netip.Prefix) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free > 0 {
		l.free--
		l.slots[source]++
		return nil
	}
	w := &waiter{source: source, granted: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	return w
}

// giveUp removes a waiter. It returns false if the waiter has got a slot.
func (l *limiter) giveUp(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// release passes the slot of a source on.
func (l *limiter) release(source netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots[source]--; l.slots[source] == 0 {
		delete(l.slots, source)
	}
	next := -1
	for i, w := range l.waiting {
		if next < 0 || l.slots[w.source] < l.slots[l.waiting[next].source] {
			next = i
		}
	}
	if next < 0 {
		l.free++
		return
	}
	w := l.waiting[next]
	l.waiting = slices.Delete(l.waiting, next, next+1)
	l.slots[w.source]++
	close(w.granted)
}

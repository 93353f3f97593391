package timer

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Queue holds functions to call. Use NewQueue. It is safe for concurrent use.
type Queue struct {
	clock clock.Clock
	// earliestChanged receives a value when another entry became the earliest.
	earliestChanged chan struct{}

	mu      sync.Mutex
	entries entries
	// waitsUntil is the time until which Run waits; zero while it does not wait for a time.
	waitsUntil time.Time
	// calling is true while a call is made.
	calling bool
}

// Entry is one call that a Queue will make.
type Entry struct {
	at   time.Time
	call func()
	// index is the entry's position in the heap, negative once it was removed.
	index int
}

// NewQueue returns an empty Queue. Run has to be called for its calls to be made.
func NewQueue(c clock.Clock) *Queue {
	return &Queue{clock: c, earliestChanged: make(chan struct{}, 1)}
}

// At schedules a call. The function runs on the queue's only goroutine, so it must
// return quickly.
func (q *Queue) At(t time.Time, call func()) *Entry {
	added := &Entry{at: t, call: call}
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.entries, added)
	if added.index == 0 {
		q.waitsUntil = time.Time{} // Run is about to wait anew
		select {
		case q.earliestChanged <- struct{}{}:
		default:
		}
	}
	return added
}

// Cancel removes an entry. Its call may be running already.
func (q *Queue) Cancel(e *Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.index >= 0 {
		heap.Remove(&q.entries, e.index)
	}
}

// Len returns the number of calls that are still to be made.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

// Waits reports whether nothing is to be done until the clock advances: no call is due or
// being made, and Run waits for the next one. A test that advances a fake clock earlier may
// delay calls by as much.
func (q *Queue) Waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) == 0 {
		return !q.calling
	}
	// It waits for less than the next call if an earlier one was cancelled.
	return q.waitsUntil.After(q.clock.Now()) && !q.waitsUntil.After(q.entries[0].at)
}

// Run makes the calls until the context ends.
func (q *Queue) Run(ctx context.Context) {
	for {
		next, more := q.callDue()
		if !more {
			select {
			case <-ctx.Done():
				return
			case <-q.earliestChanged:
			}
			continue
		}
		timer := q.clock.NewTimer(next.Sub(q.clock.Now()))
		if !q.setWaiting(next) {
			timer.Stop()
			continue
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-q.earliestChanged:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// setWaiting records that Run waits until next, unless that is over or another entry became
// the earliest: the clock may have advanced, or At been called, before the timer was made.
func (q *Queue) setWaiting(next time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.earliestChanged) > 0 || !next.After(q.clock.Now()) {
		return false
	}
	q.waitsUntil = next
	return true
}

// callDue makes the calls that are due and returns the time of the next one.
func (q *Queue) callDue() (next time.Time, more bool) {
	for {
		q.mu.Lock()
		q.waitsUntil, q.calling = time.Time{}, false
		select {
		case <-q.earliestChanged: // the entries are looked at now
		default:
		}
		if len(q.entries) == 0 {
			q.mu.Unlock()
			return time.Time{}, false
		}
		if next = q.entries[0].at; next.After(q.clock.Now()) {
			q.mu.Unlock()
			return next, true
		}
		call := heap.Pop(&q.entries).(*Entry).call // the heap holds entries only
		q.calling = true
		q.mu.Unlock()
		call()
	}
}

// entries implements heap.Interface.
type entries []*Entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }

func (e entries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *entries) Push(x any) {
	added := x.(*Entry) // the heap holds entries only
	added.index = len(*e)
	*e = append(*e, added)
}

func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	last.index = -1
	return last
}

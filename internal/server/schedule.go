package server

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// schedule calls functions at given times. One goroutine and one timer serve all
// hosts.
type schedule struct {
	clock clock.Clock
	// earlier is sent to when the first entry became another.
	earlier chan struct{}

	mu      sync.Mutex
	entries entries
}

type entry struct {
	at time.Time
	do func()
	// index is the entry's place in the heap, below 0 when it is not there any more.
	index int
}

func newSchedule(c clock.Clock) *schedule {
	return &schedule{clock: c, earlier: make(chan struct{}, 1)}
}

// at has do called at that time, unless the entry is dropped before. It must return
// quickly.
func (s *schedule) at(t time.Time, do func()) *entry {
	added := &entry{at: t, do: do}
	s.mu.Lock()
	heap.Push(&s.entries, added)
	first := s.entries[0].at.Equal(t)
	s.mu.Unlock()
	if first {
		select {
		case s.earlier <- struct{}{}:
		default:
		}
	}
	return added
}

// drop takes an entry back. What it does may be under way.
func (s *schedule) drop(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.index >= 0 {
		heap.Remove(&s.entries, e.index)
	}
}

// run works until the context ends.
func (s *schedule) run(ctx context.Context) {
	for {
		next, more := s.callDue()
		if !more {
			select {
			case <-ctx.Done():
				return
			case <-s.earlier:
			}
			continue
		}
		timer := s.clock.NewTimer(next.Sub(s.clock.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.earlier:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// callDue calls what is due and returns when the next is.
func (s *schedule) callDue() (next time.Time, more bool) {
	for {
		s.mu.Lock()
		if len(s.entries) == 0 {
			s.mu.Unlock()
			return time.Time{}, false
		}
		if next = s.entries[0].at; next.After(s.clock.Now()) {
			s.mu.Unlock()
			return next, true
		}
		do := heap.Pop(&s.entries).(*entry).do //nolint:forcetypeassert // the heap holds entries only
		s.mu.Unlock()
		do()
	}
}

// entries implements heap.Interface.
type entries []*entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }

func (e entries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *entries) Push(x any) {
	added := x.(*entry) //nolint:forcetypeassert // the heap holds entries only
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

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
}

func newSchedule(c clock.Clock) *schedule {
	return &schedule{clock: c, earlier: make(chan struct{}, 1)}
}

// at has do called at that time. It must return quickly; there is no way to take
// it back, so it has to find out whether it is still wanted.
func (s *schedule) at(t time.Time, do func()) {
	s.mu.Lock()
	heap.Push(&s.entries, entry{at: t, do: do})
	first := s.entries[0].at.Equal(t)
	s.mu.Unlock()
	if first {
		select {
		case s.earlier <- struct{}{}:
		default:
		}
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
		do := heap.Pop(&s.entries).(entry).do //nolint:forcetypeassert // the heap holds entries only
		s.mu.Unlock()
		do()
	}
}

// entries implements heap.Interface.
type entries []entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

func (e *entries) Push(x any) {
	*e = append(*e, x.(entry)) //nolint:forcetypeassert // the heap holds entries only
}

func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = entry{}
	*e = old[:len(old)-1]
	return last
}

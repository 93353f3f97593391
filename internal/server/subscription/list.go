package subscription

import "sync"

// List holds functions to call after a change. The zero value is empty. It is
// safe for concurrent use.
type List struct {
	mu    sync.Mutex
	last  int
	calls map[int]func()
}

// Add calls f after each change until stop is called. stop does not wait for a running
// call. f must return quickly and must not call the List.
func (l *List) Add(f func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[int]func(){}
	}
	l.last++
	id := l.last
	l.calls[id] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.calls, id)
	}
}

// Changed calls all functions in turn.
func (l *List) Changed() {
	l.mu.Lock()
	calls := make([]func(), 0, len(l.calls))
	for _, f := range l.calls {
		calls = append(calls, f)
	}
	l.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

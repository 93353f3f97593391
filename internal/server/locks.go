package server

import (
	"context"
	"fmt"
	"sync"
)

// locks lets one at a time work for a key.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the key and returns what gives it back.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		other, busy := l.held[key]
		if !busy {
			mine := make(chan struct{})
			l.held[key] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another request of the same key: %w", ctx.Err())
		}
	}
}

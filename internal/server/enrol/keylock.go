package enrol

import (
	"context"
	"fmt"
	"sync"
)

// keyLocks lets one HTTP request of each key enrol at a time. The zero value is unlocked.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits until the key is unlocked, and locks it. The caller must call unlock.
func (l *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		unlocked, busy := l.held[key]
		if !busy {
			own := make(chan struct{})
			l.held[key] = own
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(own)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-unlocked:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another request of the same key: %w", ctx.Err())
		}
	}
}

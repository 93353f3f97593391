package template

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// intervalPerTemplate times the number of templates is the shortest interval, so that at
// most ten templates are updated per second.
const intervalPerTemplate = 100 * time.Millisecond

// limiter records when templates were last updated, and limits how often they are. The
// zero value is ready to use, by several goroutines.
type limiter struct {
	mu   sync.Mutex
	last map[client.ObjectKey]time.Time
}

// wait returns how long to wait until the template's next update. A clock that was set
// back does not make it longer.
func (l *limiter) wait(now time.Time, key client.ObjectKey) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.last[key]
	if !ok || now.Before(last) {
		return 0
	}
	interval := max(Interval, time.Duration(len(l.last))*intervalPerTemplate)
	return max(interval-now.Sub(last), 0)
}

func (l *limiter) updated(now time.Time, key client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[client.ObjectKey]time.Time{}
	}
	l.last[key] = now
}

func (l *limiter) remove(key client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}

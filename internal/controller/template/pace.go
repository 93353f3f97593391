package template

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// share is what each template adds to the time between two looks at any of them: all
// together there are ten looks a second at most, and as many writes.
const share = 100 * time.Millisecond

// pace remembers when templates were last looked at. The zero value is ready to use.
type pace struct {
	mu   sync.Mutex
	last map[client.ObjectKey]time.Time
}

// wait says how long a template is to be left alone. A clock that was set back
// does not make it longer.
func (p *pace) wait(now time.Time, key client.ObjectKey) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.last[key]
	if !ok || now.Before(last) {
		return 0
	}
	interval := max(Interval, time.Duration(len(p.last))*share)
	return max(interval-now.Sub(last), 0)
}

func (p *pace) looked(now time.Time, key client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[client.ObjectKey]time.Time{}
	}
	p.last[key] = now
}

func (p *pace) forget(key client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}

package session

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// Poll is one open HTTP request for a plan.
type Poll struct {
	// boot is the boot ID of the host that polls; empty if it was not sent.
	boot string
	// signal receives a value when the plan may have changed or the poll expired.
	signal  chan struct{}
	expired atomic.Bool
	// asked: the poll has to be answered with a question.
	asked atomic.Bool
}

// Woken returns a channel that receives a value when the plan may have changed or the
// poll has expired.
func (p *Poll) Woken() <-chan struct{} { return p.signal }

// Expired reports whether the poll has to end without a plan.
func (p *Poll) Expired() bool { return p.expired.Load() }

// TakeQuestion reports whether the poll has to be answered at once, with the question
// for a new report of the endpoint. It does so once for a question.
func (p *Poll) TakeQuestion() bool { return p.asked.Swap(false) }

// Expire ends the poll.
func (p *Poll) Expire() {
	p.expired.Store(true)
	p.wake()
}

func (p *Poll) wake() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// Wake makes a host's open polls compute its plan again.
func (t *Tracker) Wake(host types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[host]; s != nil {
		for _, open := range s.polls {
			open.wake()
		}
	}
}

// WakeAll is Wake for all hosts.
func (t *Tracker) WakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		for _, open := range s.polls {
			open.wake()
		}
	}
}

// WakeNamespace is Wake for all hosts of a namespace.
func (t *Tracker) WakeNamespace(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for host, s := range t.sessions {
		if host.Namespace != namespace {
			continue
		}
		for _, open := range s.polls {
			open.wake()
		}
	}
}

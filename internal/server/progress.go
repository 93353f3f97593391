package server

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// progressInterval is how long the first progress of an operation waits, and
// how far apart writes of progress are: most operations are over by then, and
// their end is written at once.
const progressInterval = 10 * time.Second

// progress is how far a host's operation is. It is not worth a write each time;
// of what comes in between, the newest is written.
type progress struct {
	newest infrav1.HostOperation
	// due is when the newest may be written.
	due time.Time
	// waiting is true while the newest is not written.
	waiting bool
	// writing is true from when progress that was due is about to be written until it
	// is: what comes in between is not due at once.
	writing bool
}

// deferProgress tells whether progress has to wait; if so it will be written
// when its time has come.
func (p *presence) deferProgress(host types.NamespacedName, op infrav1.HostOperation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	s := p.session(host)
	p.watch(host, s)
	is := s.progress
	if is == nil || is.newest.ID != op.ID || is.newest.Type != op.Type {
		is = &progress{due: now.Add(progressInterval)}
		s.progress = is
	}
	is.newest = op
	if !now.Before(is.due) && !is.writing {
		is.due = now.Add(progressInterval)
		is.waiting = false
		return false
	}
	if !is.waiting && !is.writing {
		p.schedule.at(is.due, func() { p.changed(host) })
	}
	is.waiting = true
	return true
}

// dueProgress returns progress whose time has come.
func (p *presence) dueProgress(host types.NamespacedName) (infrav1.HostOperation, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil || s.progress == nil || !s.progress.waiting || p.clock.Now().Before(s.progress.due) {
		return infrav1.HostOperation{}, false
	}
	s.progress.writing = true
	return s.progress.newest, true
}

// progressWritten takes note that this progress, or something newer, is written.
func (p *presence) progressWritten(host types.NamespacedName, op infrav1.HostOperation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil || s.progress == nil || s.progress.newest.ID != op.ID || s.progress.newest.Type != op.Type {
		return
	}
	if op.State != infrav1.OperationRunning {
		s.progress = nil
		return
	}
	s.progress.writing = false
	if s.progress.newest == op {
		s.progress.waiting = false
	}
	s.progress.due = p.clock.Now().Add(progressInterval)
	if s.progress.waiting {
		p.schedule.at(s.progress.due, func() { p.changed(host) })
	}
}

package session

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// progressInterval is how long the first progress of an operation is deferred, and the
// interval between writes of progress. Most operations end sooner, and the end is
// written at once.
const progressInterval = 10 * time.Second

// progress is the progress of a host's operation. Of several reports within an
// interval, only the newest is written.
type progress struct {
	newest infrav1.HostOperation
	// due is when the newest may be written.
	due time.Time
	// deferred is true while the newest is not written.
	deferred bool
	// writing is true while due progress is being written. Progress that is reported
	// meanwhile is deferred.
	writing bool
}

// DeferProgress reports whether progress has to wait. If so, the host is enqueued
// when it is due; otherwise the caller must write it and call ProgressWritten.
func (t *Tracker) DeferProgress(host types.NamespacedName, op infrav1.HostOperation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	s := t.session(host)
	t.scheduleCheck(host, s)
	p := s.progress
	if p == nil || p.newest.ID != op.ID || p.newest.Type != op.Type {
		p = &progress{due: now.Add(progressInterval)}
		s.progress = p
	}
	p.newest = op
	if !now.Before(p.due) && !p.writing {
		p.due = now.Add(progressInterval)
		p.deferred = false
		return false
	}
	if !p.deferred && !p.writing {
		t.timers.At(p.due, func() { t.enqueue(host) })
	}
	p.deferred = true
	return true
}

// DueProgress returns deferred progress that is due. The caller must write it and
// call ProgressWritten. The interval until the next write begins now, so that its
// length does not depend on how long this write takes.
func (t *Tracker) DueProgress(host types.NamespacedName) (infrav1.HostOperation, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil || s.progress == nil || !s.progress.deferred {
		return infrav1.HostOperation{}, false
	}
	// A write that failed is repeated.
	if now := t.clock.Now(); !s.progress.writing {
		if now.Before(s.progress.due) {
			return infrav1.HostOperation{}, false
		}
		s.progress.writing, s.progress.due = true, now.Add(progressInterval)
	}
	return s.progress.newest, true
}

// ProgressWritten is called when the host's status has this progress or a later state.
func (t *Tracker) ProgressWritten(host types.NamespacedName, op infrav1.HostOperation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil || s.progress == nil || s.progress.newest.ID != op.ID || s.progress.newest.Type != op.Type {
		return
	}
	if op.State != infrav1.OperationRunning {
		s.progress = nil
		return
	}
	s.progress.writing = false
	if s.progress.newest == op {
		s.progress.deferred = false
	}
	if s.progress.deferred {
		t.timers.At(s.progress.due, func() { t.enqueue(host) })
	}
}

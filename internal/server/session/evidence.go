package session

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// evidenceInterval is the interval between writes of a host's evidence when it flaps.
const evidenceInterval = time.Second

// evidence is what a control-plane host reports of API servers. The first change is
// written at once. Of further changes within an interval, only the newest is written.
type evidence struct {
	// due is when the next change may be written.
	due time.Time
	// deferred is the newest change that is not written; nil if none is.
	deferred *infrav1.HostEndpoint
}

// DeferEvidence reports whether evidence has to wait. If so, the host is enqueued when
// it is due; otherwise the caller must write it and call EvidenceWritten.
func (t *Tracker) DeferEvidence(host types.NamespacedName, reported *infrav1.HostEndpoint) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.session(host)
	t.scheduleCheck(host, s)
	if !t.clock.Now().Before(s.evidence.due) {
		return false
	}
	if s.evidence.deferred == nil {
		t.timers.At(s.evidence.due, func() { t.enqueue(host) })
	}
	s.evidence.deferred = reported
	return true
}

// DropEvidence drops deferred evidence, because newer evidence is about to be written.
func (t *Tracker) DropEvidence(host types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[host]; s != nil {
		s.evidence.deferred = nil
	}
}

// DueEvidence returns deferred evidence that is due, or nil.
func (t *Tracker) DueEvidence(host types.NamespacedName) *infrav1.HostEndpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil || t.clock.Now().Before(s.evidence.due) {
		return nil
	}
	return s.evidence.deferred
}

// EvidenceWritten is called when the host's status agrees with the reported evidence,
// which answers a question. If the status had to be changed for that, an interval begins.
func (t *Tracker) EvidenceWritten(host types.NamespacedName, reported *infrav1.HostEndpoint, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil {
		return
	}
	s.renew()
	if s.evidence.deferred == reported {
		s.evidence.deferred = nil
	}
	if !changed {
		return
	}
	s.evidence.due = t.clock.Now().Add(evidenceInterval)
	if s.evidence.deferred != nil {
		// Deferred during this write, until the end of the interval before.
		t.timers.At(s.evidence.due, func() { t.enqueue(host) })
	}
}

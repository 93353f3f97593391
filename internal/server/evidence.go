package server

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// evidenceInterval is how far apart writes of a host's evidence are when it
// flaps.
const evidenceInterval = time.Second

// evidence is what a control-plane host says of API servers. A change is written at
// once; of those that follow too soon the newest is, when its time has come.
type evidence struct {
	// due is when the next change may be written.
	due time.Time
	// newest waits for that; nil if nothing does.
	newest *infrav1.HostEndpoint
}

// holdEvidence tells whether evidence has to wait; if so it will be written when
// its time has come.
func (p *presence) holdEvidence(host types.NamespacedName, news *infrav1.HostEndpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session(host)
	p.watch(host, s)
	if !p.clock.Now().Before(s.evidence.due) {
		return false
	}
	if s.evidence.newest == nil {
		p.schedule.at(s.evidence.due, func() { p.changed(host) })
	}
	s.evidence.newest = news
	return true
}

// dropEvidence forgets what waits, because something newer is about to be written.
func (p *presence) dropEvidence(host types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[host]; s != nil {
		s.evidence.newest = nil
	}
}

// dueEvidence returns evidence whose time has come, or nil.
func (p *presence) dueEvidence(host types.NamespacedName) *infrav1.HostEndpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil || p.clock.Now().Before(s.evidence.due) {
		return nil
	}
	return s.evidence.newest
}

// evidenceWritten takes note that the host's status says what these news say, and
// that the next ones have to wait if it had to be changed for that.
func (p *presence) evidenceWritten(host types.NamespacedName, news *infrav1.HostEndpoint, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil {
		return
	}
	if changed {
		s.evidence.due = p.clock.Now().Add(evidenceInterval)
	}
	if s.evidence.newest == news {
		s.evidence.newest = nil
	}
}

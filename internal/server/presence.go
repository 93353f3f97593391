package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// A host that keeps to the protocol reports far less often.
	reportsPerSecond = 2
	reportsBurst     = 30
	// So does it poll: once for each change of its plan.
	pollsPerSecond = 5
	pollsBurst     = 100
	// maxPolls of one host are open at a time: its own, and those of connections that
	// it has lost.
	maxPolls = 4
)

// presence knows which hosts are connected: those with an open poll, and those
// whose last one ended less than the grace time ago.
type presence struct {
	clock    clock.PassiveClock
	grace    time.Duration
	schedule *schedule
	// changed is called when there may be something to write about a host.
	changed func(types.NamespacedName)
	// polling counts hosts with an open poll.
	polling atomic.Int64

	mu       sync.Mutex
	sessions map[types.NamespacedName]*session
}

// session is what is known of a host that is, or should be, connected.
type session struct {
	polls []*poll
	// lastSeen is when the last poll ended.
	lastSeen time.Time
	// recorded is true once the host's status is known to say Connected.
	recorded bool
	// watched is true while the schedule holds a call of checkAbsence.
	watched  bool
	progress *progress
	evidence evidence
	// requests limits polls, reports what else a host asks for.
	requests, reports *rate.Limiter
	boots             boots
	// planned is the last plan that was made.
	planned planned
}

// poll is one open plan request.
type poll struct {
	// boot is the host's boot that polls, blank if it doesn't say.
	boot string
	// signal is sent to when the plan may have changed or the time is up.
	signal  chan struct{}
	expired atomic.Bool
}

func (p *poll) wake() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

func (p *poll) expire() {
	p.expired.Store(true)
	p.wake()
}

func newPresence(c clock.PassiveClock, grace time.Duration, s *schedule, changed func(types.NamespacedName)) *presence {
	return &presence{
		clock: c, grace: grace, schedule: s, changed: changed,
		sessions: map[types.NamespacedName]*session{},
	}
}

// session returns the host's session, and makes one if there is none. The caller
// holds the lock.
func (p *presence) session(host types.NamespacedName) *session {
	s := p.sessions[host]
	if s == nil {
		s = &session{lastSeen: p.clock.Now()}
		p.sessions[host] = s
	}
	return s
}

// open registers a poll, from now on woken by events, unless the boot that polls
// is one that another has followed. Polls of an earlier boot end: if somebody is
// still there, it will show.
func (p *presence) open(host types.NamespacedName, boot string) (*poll, bootVerdict) {
	opened := &poll{boot: boot, signal: make(chan struct{}, 1)}
	p.mu.Lock()
	s := p.session(host)
	if verdict := s.boots.poll(boot, p.clock.Now()); verdict != bootFine {
		p.watch(host, s)
		p.mu.Unlock()
		return nil, verdict
	}
	for i, other := range s.polls {
		if len(s.polls)-i >= maxPolls {
			other.expire()
		}
		if boot != "" && other.boot != "" && other.boot != boot {
			other.expire()
		}
	}
	if len(s.polls) == 0 {
		p.polling.Add(1)
	}
	s.polls = append(s.polls, opened)
	unrecorded := !s.recorded
	p.mu.Unlock()
	if unrecorded {
		p.changed(host)
	}
	return opened, bootFine
}

// forgetBoots drops what is known of the host's boots.
func (p *presence) forgetBoots(host types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[host]; s != nil {
		s.boots = boots{}
	}
}

// close takes a poll away; if it was the last, the grace time begins.
func (p *presence) close(host types.NamespacedName, closed *poll) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil {
		return
	}
	if i := slices.Index(s.polls, closed); i >= 0 {
		s.polls = slices.Delete(s.polls, i, i+1)
		if len(s.polls) == 0 {
			p.polling.Add(-1)
		}
	}
	s.lastSeen = p.clock.Now()
	p.watch(host, s)
}

// seen takes note of a host whose status says Connected and which has no poll
// open yet: it just enrolled, or it was connected when another process ran the
// API. It gets the grace time to come (back).
func (p *presence) seen(host types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.sessions[host]; known {
		return
	}
	p.watch(host, p.session(host))
}

// watch has the host's absence checked when the grace time is over. The caller
// holds the lock.
func (p *presence) watch(host types.NamespacedName, s *session) {
	if s.watched || len(s.polls) > 0 {
		return
	}
	s.watched = true
	p.schedule.at(s.lastSeen.Add(p.grace), func() { p.checkAbsence(host) })
}

func (p *presence) checkAbsence(host types.NamespacedName) {
	p.mu.Lock()
	s := p.sessions[host]
	if s == nil {
		p.mu.Unlock()
		return
	}
	s.watched = false
	absent := p.absent(s)
	if !absent {
		p.watch(host, s)
	}
	p.mu.Unlock()
	if absent {
		p.changed(host)
	}
}

func (p *presence) absent(s *session) bool {
	return len(s.polls) == 0 && !p.clock.Now().Before(s.lastSeen.Add(p.grace))
}

// state is what a host's status should say; neither connected nor absent: leave
// it as it is.
func (p *presence) state(host types.NamespacedName) (connected, absent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil {
		return false, false
	}
	return len(s.polls) > 0, p.absent(s)
}

// written takes note that the host's status was found or made to say so. If the
// truth changed meanwhile, there is something to write again.
func (p *presence) written(host types.NamespacedName, connected bool) {
	p.mu.Lock()
	s := p.sessions[host]
	again := false
	switch {
	case s == nil:
	case connected:
		s.recorded = true
	case len(s.polls) > 0:
		s.recorded, again = false, true
	default:
		delete(p.sessions, host)
	}
	p.mu.Unlock()
	if again {
		p.changed(host)
	}
}

// wake has the host's polls look at the host again.
func (p *presence) wake(host types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[host]; s != nil {
		for _, open := range s.polls {
			open.wake()
		}
	}
}

// wakeAll has all polls look again.
func (p *presence) wakeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		for _, open := range s.polls {
			open.wake()
		}
	}
}

// wakeNamespace has all polls of a namespace look again.
func (p *presence) wakeNamespace(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, s := range p.sessions {
		if host.Namespace != namespace {
			continue
		}
		for _, open := range s.polls {
			open.wake()
		}
	}
}

// forget drops what is known of a host that is gone; polls end by themselves.
func (p *presence) forget(host types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil {
		return
	}
	if len(s.polls) > 0 {
		p.polling.Add(-1)
	}
	for _, open := range s.polls {
		open.wake()
	}
	delete(p.sessions, host)
}

// allowPoll tells whether the host may ask for its plan now, or else when.
func (p *presence) allowPoll(host types.NamespacedName) (after time.Duration, ok bool) {
	return p.allow(host, func(s *session) **rate.Limiter { return &s.requests }, pollsPerSecond, pollsBurst)
}

// allowReport tells whether the host may report now, or else when.
func (p *presence) allowReport(host types.NamespacedName) (after time.Duration, ok bool) {
	return p.allow(host, func(s *session) **rate.Limiter { return &s.reports }, reportsPerSecond, reportsBurst)
}

func (p *presence) allow(host types.NamespacedName, limiter func(*session) **rate.Limiter, perSecond rate.Limit, burst int) (after time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session(host)
	p.watch(host, s)
	l := limiter(s)
	if *l == nil {
		*l = rate.NewLimiter(perSecond, burst)
	}
	if (*l).AllowN(p.clock.Now(), 1) {
		return 0, true
	}
	return time.Second, false
}

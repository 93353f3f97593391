package session

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// maxPolls is how many polls of one host may be open: the agent's own, and those of
// connections that broke without the manager's knowledge.
const maxPolls = 4

// Tracker tracks the sessions of all hosts. A host is connected while it has an open
// poll, and until the grace period has passed since its last one ended. It is safe for
// concurrent use.
type Tracker struct {
	clock  clock.PassiveClock
	grace  time.Duration
	timers *timer.Queue
	// enqueue is called when a host's status may have to be written.
	enqueue func(types.NamespacedName)
	// polling counts hosts with an open poll.
	polling atomic.Int64
	// questions counts the questions of Ask.
	questions prometheus.Counter

	mu       sync.Mutex
	sessions map[types.NamespacedName]*session
}

// session is the state of one host. There is one for each connected host, so progress,
// which few hosts have, is a pointer.
type session struct {
	polls []*Poll
	// lastSeen is when the last poll ended.
	lastSeen time.Time
	// recorded is true once the host's status is known to be Connected.
	recorded bool
	// checkScheduled is true while a call of checkDisconnected is scheduled.
	checkScheduled bool
	// retryScheduled is true while EnqueueAfter has scheduled a call.
	retryScheduled bool
	// factsCut is true if the host has facts that its status has not room for until it is
	// approved.
	factsCut bool
	progress *progress
	evidence evidence
	// polls and other HTTP requests have rates of their own.
	pollRate, requestRate *rate.Limiter
	boots                 bootTracker
	lastPlan              lastPlan
	// hasPolled is true once the host has polled.
	hasPolled bool
	question  *question
}

// Options of a Tracker.
type Options struct {
	Clock clock.PassiveClock
	// Grace is how long a host without an open poll counts as connected.
	Grace  time.Duration
	Timers *timer.Queue
	// Enqueue is called when a host's status may have to be written: State, DueProgress or
	// DueEvidence may have changed. It must not call the Tracker.
	Enqueue func(types.NamespacedName)
	Metrics prometheus.Registerer
}

// New returns a Tracker whose metrics are registered.
func New(o Options) (*Tracker, error) {
	t := &Tracker{clock: o.Clock, grace: o.Grace, timers: o.Timers, enqueue: o.Enqueue, sessions: map[types.NamespacedName]*session{}}
	polling := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "elemental", Subsystem: "agent_api", Name: "connected_hosts",
		Help: "Hosts that wait for their plan right now.",
	}, func() float64 { return float64(t.polling.Load()) })
	t.questions = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "elemental", Subsystem: "agent_api", Name: "endpoint_questions_total",
		Help: "Questions to control-plane hosts whether they still reach the endpoint, because one of the cluster does not.",
	})
	for _, c := range []prometheus.Collector{polling, t.questions} {
		if err := o.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return t, nil
}

// session returns the host's session and creates it if needed. The caller holds the
// lock.
func (t *Tracker) session(host types.NamespacedName) *session {
	s := t.sessions[host]
	if s == nil {
		s = &session{lastSeen: t.clock.Now()}
		t.sessions[host] = s
	}
	return s
}

// Open opens a poll, unless the host's boots don't allow it; then the poll is nil. Open
// polls of an earlier boot expire: if a second machine sends them, it polls again and
// is detected. The caller must call Close.
func (t *Tracker) Open(host types.NamespacedName, boot string) (*Poll, BootVerdict) {
	opened := &Poll{boot: boot, signal: make(chan struct{}, 1)}
	t.mu.Lock()
	s := t.session(host)
	if verdict := s.boots.observe(boot, t.clock.Now()); verdict != BootAccepted {
		t.scheduleCheck(host, s)
		t.mu.Unlock()
		return nil, verdict
	}
	for i, other := range s.polls {
		if len(s.polls)-i >= maxPolls {
			other.Expire()
		}
		if boot != "" && other.boot != boot {
			other.Expire()
		}
	}
	s.polls = append(s.polls, opened)
	s.hasPolled = true
	s.deliver(opened)
	if !s.recorded {
		t.enqueue(host)
	}
	// Last, so that whoever sees it sees the rest too.
	if len(s.polls) == 1 {
		t.polling.Add(1)
	}
	t.mu.Unlock()
	return opened, BootAccepted
}

// Close removes a poll. The grace period begins with the last one.
func (t *Tracker) Close(host types.NamespacedName, closed *Poll) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil {
		return
	}
	i := slices.Index(s.polls, closed)
	if i >= 0 {
		s.polls = slices.Delete(s.polls, i, i+1)
	}
	s.lastSeen = t.clock.Now()
	s.recall(closed, s.lastSeen)
	t.scheduleCheck(host, s)
	if i >= 0 && len(s.polls) == 0 {
		t.polling.Add(-1)
	}
}

// Expect begins the grace period of a host whose status is Connected and which has no
// session: it has just enrolled, or was connected to another process.
func (t *Tracker) Expect(host types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.sessions[host]; known {
		return
	}
	t.scheduleCheck(host, t.session(host))
}

// scheduleCheck schedules checkDisconnected for the end of the grace period. The
// caller holds the lock.
func (t *Tracker) scheduleCheck(host types.NamespacedName, s *session) {
	if s.checkScheduled || len(s.polls) > 0 {
		return
	}
	s.checkScheduled = true
	t.timers.At(s.lastSeen.Add(t.grace), func() { t.checkDisconnected(host) })
}

func (t *Tracker) checkDisconnected(host types.NamespacedName) {
	t.mu.Lock()
	s := t.sessions[host]
	if s == nil {
		t.mu.Unlock()
		return
	}
	s.checkScheduled = false
	disconnected := s.isDisconnected(t.clock.Now(), t.grace)
	if !disconnected {
		t.scheduleCheck(host, s)
	}
	t.mu.Unlock()
	if disconnected {
		t.enqueue(host)
	}
}

// isDisconnected reports whether the grace period has passed since the last poll.
func (s *session) isDisconnected(now time.Time, grace time.Duration) bool {
	return len(s.polls) == 0 && !now.Before(s.lastSeen.Add(grace))
}

// State returns whether the host has an open poll, and whether its grace period has
// passed. If neither is true, the connection state in its status must not change.
func (t *Tracker) State(host types.NamespacedName) (connected, disconnected bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil {
		return false, false
	}
	return len(s.polls) > 0, s.isDisconnected(t.clock.Now(), t.grace)
}

// Recorded is called when the host's status has the connection state. If the state
// changed during the write, the host is enqueued again. A recorded disconnection removes the
// session.
func (t *Tracker) Recorded(host types.NamespacedName, connected bool) {
	t.mu.Lock()
	s := t.sessions[host]
	again := false
	switch {
	case s == nil:
	case connected:
		s.recorded = true
	case len(s.polls) > 0:
		s.recorded, again = false, true
	default:
		delete(t.sessions, host)
	}
	t.mu.Unlock()
	if again {
		t.enqueue(host)
	}
}

// EnqueueAfter enqueues the host after a time, because its status could not be written now.
// Further calls before that change nothing.
func (t *Tracker) EnqueueAfter(host types.NamespacedName, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil || s.retryScheduled {
		return
	}
	s.retryScheduled = true
	t.timers.At(t.clock.Now().Add(after), func() {
		t.mu.Lock()
		if s := t.sessions[host]; s != nil {
			s.retryScheduled = false
		}
		t.mu.Unlock()
		t.enqueue(host)
	})
}

// FactsCut records that the host's status has not room for all facts until the host is
// approved.
func (t *Tracker) FactsCut(host types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.session(host)
	t.scheduleCheck(host, s)
	s.factsCut = true
}

// TakeFactsCut reports whether FactsCut was called since the last call of TakeFactsCut.
func (t *Tracker) TakeFactsCut(host types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	cut := s != nil && s.factsCut
	if cut {
		s.factsCut = false
	}
	return cut
}

// Forget drops the session of a deleted host. Its polls are woken and find that it
// is gone.
func (t *Tracker) Forget(host types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[host]
	if s == nil {
		return
	}
	if len(s.polls) > 0 {
		t.polling.Add(-1)
	}
	for _, open := range s.polls {
		open.wake()
	}
	delete(t.sessions, host)
}

// ForgetBoots drops the boots of a host, so that an unlocked host is not locked again
// for the polls that led to its lock.
func (t *Tracker) ForgetBoots(host types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[host]; s != nil {
		s.boots = bootTracker{}
	}
}

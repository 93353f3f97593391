package tunnel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a stream waits for the agent before the agent is asked.
	patience = 5 * time.Second
	// answerTimeout bounds the agent's answer.
	answerTimeout = 5 * time.Second
	// askInterval is the least time between two questions.
	askInterval = 10 * time.Second
)

// suspicion asks the agent whether it is there after a stream has waited for it, and
// ends the session if it isn't. An idle tunnel costs nothing.
type suspicion struct {
	session *Session
	began   time.Time
	// dials that were given up before the agent answered: their streams are gone.
	dials pulse

	mu    sync.Mutex
	timer *time.Timer
	// armed says that the timer runs, or look does.
	armed   bool
	stopped bool
	// asked is when the last question was sent.
	asked time.Duration
}

// pulse is when a stream has sent what it has heard nothing since: the time since the
// session began, or zero.
type pulse struct{ since atomic.Int64 }

func (p *pulse) heard() {
	if p.since.Load() != 0 {
		p.since.Store(0)
	}
}

func (s *suspicion) init(session *Session) {
	s.session, s.began, s.asked = session, time.Now(), -askInterval
}

// now is never zero.
func (s *suspicion) now() time.Duration { return time.Since(s.began) + 1 }

// sent records that a stream has sent something.
func (s *suspicion) sent(p *pulse) {
	if p.since.Load() == 0 && p.since.CompareAndSwap(0, int64(s.now())) {
		s.arm()
	}
}

// unanswered records a dial that its caller has given up. Callers may give up before the agent
// is asked: without the record, their dials would never show that the tunnel is dead.
func (s *suspicion) unanswered(since int64) {
	if since != 0 && s.dials.since.CompareAndSwap(0, since) {
		s.arm()
	}
}

// each calls a function with all pulses.
func (s *suspicion) each(call func(*pulse)) {
	call(&s.dials)
	s.session.each(func(c *stream) { call(&c.pulse) })
}

func (s *suspicion) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.armed || s.stopped:
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(patience, s.look)
	default:
		s.timer.Reset(patience)
	}
	s.armed = true
}

func (s *suspicion) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// look asks the agent if a stream or a dial has waited for long enough, and goes on for as
// long as one waits.
func (s *suspicion) look() {
	for {
		due, now := s.due()
		if !due {
			return
		}
		if err := s.ask(); err != nil {
			s.session.end(err)
			return
		}
		// The answer is for all that was sent before the question.
		s.each(func(p *pulse) {
			if since := p.since.Load(); since != 0 && since <= int64(now) {
				p.since.CompareAndSwap(since, 0)
			}
		})
	}
}

// due reports whether to ask now. If it is too early, it starts the timer.
func (s *suspicion) due() (ask bool, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.oldest()
	if oldest == 0 || s.stopped {
		s.armed = false
		return false, 0
	}
	now = s.now()
	if due := max(oldest+patience, s.asked+askInterval); now < due {
		s.timer.Reset(due - now)
		return false, 0
	}
	s.asked = now
	return true, now
}

func (s *suspicion) oldest() time.Duration {
	var oldest int64
	s.each(func(p *pulse) {
		if since := p.since.Load(); since != 0 && (oldest == 0 || since < oldest) {
			oldest = since
		}
	})
	return time.Duration(oldest)
}

// ask returns an error if the agent is gone. Whatever arrives shows that it isn't: on a
// slow link the answer may be behind megabytes of data.
func (s *suspicion) ask() error {
	before := s.session.wire.received.Load()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	err := s.session.ask(ctx)
	if err == nil || s.session.wire.received.Load() != before {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnresponsive, err)
}

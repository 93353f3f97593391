package session

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// recentAnswer is how long the answer to a question says something about the host while
// the next question is open.
const recentAnswer = 2 * failover.AskInterval

// question is the last question to a host for a new report of the endpoint.
type question struct {
	contact failover.Contact
	// isUndelivered: the next poll is to be answered with the question.
	isUndelivered bool
}

// Ask asks a host for a new report of the endpoint by answering its open polls, or the
// next one. It returns the host's answer so far. A host that has answered is asked again
// after failover.AskInterval, one that has not answered is not asked again. A host that
// has not polled since the start of this process may be about to return, so it is not
// asked, and its silence means nothing.
func (t *Tracker) Ask(host types.NamespacedName) failover.Contact {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, now := t.sessions[host], t.clock.Now()
	if s == nil {
		return failover.Contact{}
	}
	if q := s.question; q != nil && (!q.contact.Answer.Request || now.Before(q.contact.AskedAt.Add(failover.AskInterval))) {
		return q.contact
	}
	next := &question{contact: failover.Contact{AskedAt: now}}
	if q := s.question; q != nil && now.Before(q.contact.AskedAt.Add(recentAnswer)) {
		next.contact.Before = new(q.contact.Answer)
	}
	if len(s.polls) == 0 {
		next.contact.AbsentSince, next.isUndelivered = s.lastSeen, true
		next.contact.HasNotReturned = !s.hasPolled
	}
	for _, open := range s.polls {
		open.asked.Store(true)
		open.wake()
	}
	s.question = next
	t.questions.Inc()
	return next.contact
}

// recall takes back a question that a poll was to carry and did not: the host has hung up.
func (s *session) recall(closed *Poll, now time.Time) {
	if !closed.TakeQuestion() || s.question == nil || s.question.contact.Answer.Request {
		return
	}
	s.question.isUndelivered = true
	s.question.contact.AbsentSince = now
}

// hear records that the host has sent a request.
func (s *session) hear() {
	if s.question != nil {
		s.question.contact.Answer.Request = true
	}
}

// renew records that the host has reported the endpoint.
func (s *session) renew() {
	if s.question != nil {
		s.question.contact.Answer.Report = true
	}
}

// deliver makes a new poll carry a question that no other poll has carried.
func (s *session) deliver(opened *Poll) {
	if s.question != nil && s.question.isUndelivered {
		s.question.isUndelivered = false
		opened.asked.Store(true)
	}
}

package endpoint

import (
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// contactLost is how long a connection to a host that is gone stays open.
const contactLost = 10 * time.Second

// contacts are a manager's open polls, in the tracker of the agent API.
type contacts struct {
	*session.Tracker

	sim   *simulation
	polls map[string]*session.Poll
}

func (s *simulation) newContacts() *contacts {
	s.T.Helper()
	tracker, err := session.New(session.Options{
		Clock: s.clock, Grace: s.grace, Timers: timer.NewQueue(s.clock), Metrics: prometheus.NewRegistry(),
		Enqueue: func(types.NamespacedName) {},
	})
	s.Expect(err).NotTo(HaveOccurred())
	return &contacts{Tracker: tracker, sim: s, polls: map[string]*session.Poll{}}
}

func (c *contacts) key(h *host) types.NamespacedName {
	return types.NamespacedName{Namespace: c.sim.Namespace, Name: h.name}
}

// poll keeps a poll of a host open that reaches the manager. A poll that brings a question
// is followed by another one.
func (c *contacts) poll(h *host) {
	for open := c.polls[h.name]; open == nil || open.TakeQuestion(); open = c.polls[h.name] {
		if open != nil {
			c.sim.record("%s is asked", h.name)
			h.asked, h.isQuestioned = true, true
			if !h.knowsQuestion {
				c.sim.answered(h) // by the poll that follows
			}
			c.Close(c.key(h), open)
		}
		c.AllowPoll(c.key(h))
		c.polls[h.name], _ = c.Open(c.key(h), "")
	}
}

// lose closes the poll of a host that does not reach the manager, if its connection is
// known to be lost.
func (c *contacts) lose(h *host) {
	if open := c.polls[h.name]; open != nil && c.sim.clock.Since(h.lastContact) > contactLost {
		c.Close(c.key(h), open)
		delete(c.polls, h.name)
	}
}

const (
	// answerAge is how old the last answer of a host may be on which the endpoint moves: the
	// time between two questions, and a step of the simulation.
	answerAge = failover.AskInterval + 10*time.Second
	// reportAge is how old the host's finding may be then: a report is sent some steps later
	// and is late by up to 20 s.
	reportAge = time.Minute
	// confirmationAge is how old the last answer to a question may be then: an answer counts
	// until the next question is answered or overdue.
	confirmationAge = 2*failover.AskInterval + 30*time.Second
)

// isLiveEvidence reports whether the host was in contact with the manager just now and did
// not reach the endpoint.
func (s *simulation) isLiveEvidence(h *host, endpoint string) bool {
	return s.clock.Since(h.lastContact) <= answerAge && h.missed == endpoint && s.clock.Since(h.missedAt) <= reportAge
}

// isConfirmed reports whether the host has answered a question of the manager just now.
func (s *simulation) isConfirmed(h *host) bool {
	return !h.answeredAt.IsZero() && s.clock.Since(h.answeredAt) <= confirmationAge
}

// isInContact reports whether the host has contact with the manager and owes it no report.
func (s *simulation) isInContact(h *host) bool {
	return h.on && h.online && !h.answers() && len(h.inFlight) == 0 && s.clock.Since(h.lastContact) <= failover.AskInterval
}

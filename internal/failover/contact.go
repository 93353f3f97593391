package failover

import (
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// AskInterval is how long after a question that was answered a host is asked again.
	AskInterval = 30 * time.Second
	// answerTime is how long a host has to send any request after a question.
	answerTime = 5 * time.Second
	// reportTime is how long a host has to send the report that a question asks for.
	reportTime = 15 * time.Second
	// absenceTime is how long a host without an open poll has to return. A question does
	// not reach it, and an agent that lost its connection is back within seconds.
	absenceTime = 20 * time.Second
	// restartTime is how long a host has to return after the manager has started. Agents
	// try every few seconds while nobody answers, but a manager that many hosts return to
	// tells them to come later.
	restartTime = time.Minute
)

// Answer says what a host has sent since it was asked.
type Answer struct {
	// Request: any request.
	Request bool
	// Report: a report of the endpoint that is in the host's status.
	Report bool
}

// Contact is the manager's contact with a host that it has asked for a new report of the
// endpoint. The zero value stands for a host that the manager knows nothing of.
type Contact struct {
	// AskedAt is when the host was last asked; zero if never.
	AskedAt time.Time
	// AbsentSince is when the host's last poll had ended, if it had no open poll when it
	// was asked; zero if it had.
	AbsentSince time.Time
	// HasNotReturned says that the host has not polled since the manager started, which
	// was at AbsentSince.
	HasNotReturned bool
	// Answer to the last question.
	Answer Answer
	// Before is the answer to the question before; nil if that was long ago.
	Before *Answer
}

// standing says whether the host's evidence counts.
type standing int

const (
	// unasked: the evidence may be outdated.
	unasked standing = iota
	// awaited: the host may still answer.
	awaited
	// confirmed: the host has confirmed its evidence.
	confirmed
	// unconfirmed: the host sends requests, but not the report that it was asked for.
	unconfirmed
	// silent: the host does not answer. It is dead, or its connection is.
	silent
)

// counts reports whether the host's evidence counts.
func (s standing) counts() bool { return s != unconfirmed && s != silent }

// standing returns the standing of a connected member, and when it may change or the
// host is to be asked again.
func (c Cluster) standing(m Member) (is standing, until time.Time) {
	contact := c.Contacts[m.Host.Name]
	if contact.AskedAt.IsZero() {
		return unasked, c.Now.Add(answerTime)
	}
	switch is := contact.Answer.standing(m.Host); {
	case is == confirmed:
		return confirmed, contact.AskedAt.Add(AskInterval)
	case is == unconfirmed && !c.Now.Before(contact.AskedAt.Add(reportTime)):
		return unconfirmed, contact.AskedAt.Add(AskInterval)
	case is == unconfirmed:
		until = contact.AskedAt.Add(reportTime)
	default:
		until = contact.AskedAt.Add(answerTime)
		if back := contact.returnsBy(); back.After(until) {
			until = back
		}
		if !c.Now.Before(until) {
			return silent, c.Now.Add(AskInterval)
		}
	}
	if contact.Before != nil {
		// Otherwise the evidence would stop counting with each question.
		return contact.Before.standing(m.Host), until
	}
	return awaited, until
}

// returnsBy returns when a host that had no open poll has to be back. It is zero for others.
func (c Contact) returnsBy() time.Time {
	switch {
	case c.AbsentSince.IsZero():
		return time.Time{}
	case c.HasNotReturned:
		return c.AbsentSince.Add(restartTime)
	default:
		return c.AbsentSince.Add(absenceTime)
	}
}

// answers reports whether a connected member answers the manager, or was not asked.
func (c Cluster) answers(m Member) bool {
	is, _ := c.standing(m)
	return is.counts()
}

// standing returns the standing of a host that has answered like this in time. Agents of
// older versions don't know the question. They poll again, and report only changes.
func (a Answer) standing(host *infrav1.ElementalHost) standing {
	switch {
	case a.Report || a.Request && !host.Supports(infrav1.OperationType(protocol.CapabilityReportEndpoint)):
		return confirmed
	case a.Request:
		return unconfirmed
	default:
		return silent
	}
}

// HostsToAsk returns the hosts to ask for a new report of the endpoint: all connected
// control-plane hosts if one of them reports the endpoint as unreachable, else none.
// The caller sets their Contacts before it calls Decide.
func HostsToAsk(c Cluster) []*infrav1.ElementalHost {
	var hosts []*infrav1.ElementalHost
	suspected := false
	for _, m := range c.Members {
		if !m.isControlPlane() || !m.Host.IsBootstrapped() || !m.isConnected() {
			continue
		}
		hosts = append(hosts, m.Host)
		if m.Host.Name == c.endpointHostName() {
			continue
		}
		probe := m.report().Probe
		suspected = suspected || probe != nil && probe.Endpoint == c.Endpoint() && probe.Result != infrav1.ProbeReachable
	}
	if !suspected {
		return nil
	}
	return hosts
}

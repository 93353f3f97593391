package agent_test

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// successor is m as the plan of another manager names it.
func (m *manager) successor() protocol.Desired {
	return protocol.Desired{Successor: &protocol.Successor{Servers: []string{m.server.URL}, TrustBundle: m.bundle}}
}

// knowAs makes m know the host as from does, with its plan. desired are the servers and the
// successor of that plan.
func (m *manager) knowAs(from *manager, desired protocol.Desired) {
	from.mu.Lock()
	key, generation, op := from.key, from.generation, from.plan.Operation
	retired := maps.Clone(from.retired)
	from.mu.Unlock()
	m.set(func(m *manager) { m.key, m.generation, m.retired = key, generation, retired })
	m.want(op, desired)
}

func (m *manager) forget() { m.set(func(m *manager) { m.key = "" }) }

// own are the servers and the trust bundle of m, as its plans have them.
func (m *manager) own() protocol.Desired {
	return protocol.Desired{Servers: []string{m.server.URL}, TrustBundle: m.bundle}
}

// hasReached is a condition: the host has reported whether it has reached a successor.
func hasReached(s *protocol.Successor, reached bool) func(*manager) bool {
	return func(m *manager) bool {
		for _, report := range m.reports {
			if r := report.Successor; r != nil && r.Digest == s.Digest() && r.Reached == reached && (r.Message == "") == reached {
				return true
			}
		}
		return false
	}
}

// newFollower returns a running host that knows a successor, which does not know the host yet.
func newFollower(t *testing.T) (r *rig, successor *manager, stop func() error) {
	t.Helper()
	r = newRig(t)
	r.readopt = 1000 * time.Hour
	successor = newManager(t)
	stop = r.start()
	r.manager.want(bootstrapOf("a"), successor.successor())
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	r.manager.await(t, "the successor was reached", hasReached(successor.successor().Successor, true))
	r.manager.await(t, "only a long poll is open", resting)
	return r, successor, stop
}

func TestFollowsAMoveThereAndBack(t *testing.T) {
	r, successor, stop := newFollower(t)
	successor.knowAs(r.manager, successor.own())
	r.manager.forget()
	successor.await(t, "the successor knows all facts", full)
	successor.await(t, "the successor knows the result", ended("a", protocol.StateSucceeded))
	successor.await(t, "only a long poll is open", resting)
	if n := successor.count(&successor.enrolments); n != 0 || successor.count(&successor.fetches) != 0 {
		t.Errorf("the host enrolled %d times with the successor, and fetched %d bootstraps", n, successor.count(&successor.fetches))
	}
	// The host does not need the former managers any more.
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	successor.hangUp(t)
	successor.set(func(m *manager) { m.taken = "" })
	r.start()
	successor.await(t, "the host has come back after a restart", taken)

	// The next move leads back.
	successor.want(nil, r.manager.successor())
	successor.await(t, "the first managers were reached", hasReached(r.manager.successor().Successor, true))
	r.manager.set(func(m *manager) { m.reports = nil })
	r.manager.knowAs(successor, r.manager.own())
	successor.forget()
	r.manager.await(t, "the first managers know all facts", full)
}

// A registration that is deleted before its hosts, as `clusterctl move` may do, does not end what
// the host knows. One without a successor does.
func TestKeepsTheSuccessorWithoutARegistration(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		r, successor, _ := newFollower(t)
		r.manager.want(nil, protocol.Desired{KeepSuccessor: true})
		r.manager.await(t, "the host has the plan", taken)
		successor.knowAs(r.manager, protocol.Desired{})
		r.manager.forget()
		successor.await(t, "the host has followed", taken)
	})
	t.Run("withdrawn", func(t *testing.T) {
		r, successor, _ := newFollower(t)
		r.manager.want(nil, protocol.Desired{})
		r.manager.await(t, "the host says so", func(m *manager) bool {
			last := m.reports[len(m.reports)-1].Successor
			return last != nil && *last == protocol.SuccessorReport{}
		})
		r.stays(t, successor)
	})
}

// stays forgets the host, and sees that it does not turn to the other managers, which know it.
func (r *rig) stays(t *testing.T, other *manager) {
	t.Helper()
	other.knowAs(r.manager, protocol.Desired{})
	asked := r.manager.countRefusals(&protocol.Problem{Type: protocol.ProblemUnknownHost, Status: http.StatusForbidden})
	r.manager.want(nil, protocol.Desired{Hostname: "node-1"})
	r.manager.await(t, "the host was refused often", func(*manager) bool { return asked.Load() >= 30 })
	if n := other.count(&other.polls); n != 0 {
		t.Errorf("the host polled the other managers %d times", n)
	}
}

// countRefusals makes m refuse all requests, and counts polls.
func (m *manager) countRefusals(with *protocol.Problem) *atomic.Int32 {
	asked := &atomic.Int32{}
	m.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path == protocol.PathPlan {
				asked.Add(1)
				m.set(func(*manager) {})
			}
			return with
		}
	})
	return asked
}

// A manager that can't be reached says nothing about the host. The host waits longer than a
// restart of the manager takes, then follows if the successor knows it.
func TestFollowsAfterAnOutage(t *testing.T) {
	r := newRig(t)
	r.readopt = 1000 * time.Hour
	successor := newManager(t)
	address := strings.TrimPrefix(successor.server.URL, "https://")
	var lost, first atomic.Int64
	r.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to == address && lost.Load() != 0 {
			first.CompareAndSwap(0, r.clock.Now().UnixNano())
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	r.start()
	r.manager.want(nil, successor.successor())
	r.manager.await(t, "the successor was reached", hasReached(successor.successor().Successor, true))
	r.manager.await(t, "only a long poll is open", resting)
	successor.knowAs(r.manager, protocol.Desired{})
	lost.Store(r.clock.Now().UnixNano())
	r.manager.close()
	successor.await(t, "the host has followed", taken)
	// Other parts of the agent move this clock on, too.
	if waited := time.Duration(first.Load() - lost.Load()); waited < 20*time.Second {
		t.Errorf("the host turned to the successor after %s", waited)
	}
}

// close makes the manager unreachable.
func (m *manager) close() {
	_ = m.server.Listener.Close()
	m.server.CloseClientConnections()
}

func TestSaysWhyASuccessorIsNotReached(t *testing.T) {
	r := newRig(t)
	r.start()
	wrong := &protocol.Successor{Servers: []string{r.manager.server.URL}, TrustBundle: newManager(t).bundle}
	r.manager.want(nil, protocol.Desired{Successor: wrong})
	r.manager.await(t, "the host says why", hasReached(wrong, false))
}

// The successor gets no host that its managers still answer, whatever they answer.
func TestThreat92_SuccessorTakesNoHostThatIsKnown(t *testing.T) {
	for name, answer := range map[string]*protocol.Problem{
		"overloaded": {Status: http.StatusServiceUnavailable},
		"revoked":    {Type: protocol.ProblemRevoked, Status: http.StatusForbidden},
		"locked":     {Type: protocol.ProblemLocked, Status: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			r, successor, _ := newFollower(t)
			successor.knowAs(r.manager, protocol.Desired{})
			asked := r.manager.countRefusals(answer)
			r.manager.want(nil, successor.successor()) // ends the open poll
			r.manager.await(t, "the host was refused often", func(*manager) bool { return asked.Load() >= 30 })
			if n := successor.count(&successor.polls); n != 0 {
				t.Errorf("the host polled the successor %d times", n)
			}
		})
	}
}

// The trust bundle of the successor counts for its servers only: whoever has its CA can't stand
// in for the present managers.
func TestThreat92_SuccessorIsNotTrustedAsManager(t *testing.T) {
	r := newRig(t)
	r.readopt = 1000 * time.Hour
	successor := newManager(t)
	address := strings.TrimPrefix(successor.server.URL, "https://")
	var diverted atomic.Bool
	var attempts atomic.Int32
	r.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to != address && diverted.Load() {
			attempts.Add(1)
			r.manager.set(func(*manager) {})
			to = address
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	r.start()
	r.manager.want(nil, successor.successor())
	r.manager.await(t, "the successor was reached", hasReached(successor.successor().Successor, true))
	polled := successor.countRefusals(&protocol.Problem{Type: protocol.ProblemUnknownHost, Status: http.StatusForbidden})
	diverted.Store(true)
	r.manager.server.CloseClientConnections()
	r.manager.await(t, "the host tried its managers often", func(*manager) bool { return attempts.Load() >= 30 })
	if n := polled.Load(); n != 0 {
		t.Errorf("the host polled the successor %d times at the address of its managers", n)
	}
}

// A successor that does not know the host gets nothing that would let it enrol the host.
func TestThreat92_HostDoesNotEnrolWithASuccessor(t *testing.T) {
	r, successor, _ := newFollower(t)
	asked := r.manager.countRefusals(&protocol.Problem{Type: protocol.ProblemUnknownHost, Status: http.StatusForbidden})
	var enrolled atomic.Int32
	successor.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path == protocol.PathEnrol {
				enrolled.Add(1)
			}
			return nil
		}
	})
	r.manager.want(nil, successor.successor()) // ends the open poll
	r.manager.await(t, "the host was refused often", func(*manager) bool { return asked.Load() >= 30 })
	if n := enrolled.Load(); n != 0 {
		t.Errorf("the host enrolled with the successor %d times", n)
	}
}

// The former management cluster gets a host back only if the present one denies knowing it.
func TestThreat93_FormerManagersTakeNoHostBack(t *testing.T) {
	t.Run("outage", func(t *testing.T) {
		r, successor, _ := newFollower(t)
		successor.knowAs(r.manager, successor.own())
		key := r.manager.known()
		r.manager.forget()
		successor.await(t, "only a long poll is open", resting)
		polls := r.manager.count(&r.manager.polls)
		r.manager.set(func(m *manager) { m.key = key })
		failed := len(r.statuses)
		successor.close()
		for state := range r.statuses {
			if failed--; failed < 0 && state == "Disconnected" {
				break
			}
		}
		r.awaitTime(t, time.Hour)
		if n := r.manager.count(&r.manager.polls) - polls; n != 0 {
			t.Errorf("the host polled the former managers %d times", n)
		}
	})
	t.Run("denial", func(t *testing.T) {
		r, successor, _ := newFollower(t)
		successor.knowAs(r.manager, successor.own())
		key := r.manager.known()
		r.manager.forget()
		successor.await(t, "only a long poll is open", resting)
		r.manager.set(func(m *manager) { m.key, m.taken = key, "" })
		successor.forget()
		r.manager.await(t, "the host has come back", taken)
	})
}

// awaitTime waits until d has passed by the host's clock.
func (r *rig) awaitTime(t *testing.T, d time.Duration) {
	t.Helper()
	for end := r.clock.Now().Add(d); r.clock.Now().Before(end); {
		if t.Context().Err() != nil {
			t.Fatal("the host's clock stands still")
		}
	}
}

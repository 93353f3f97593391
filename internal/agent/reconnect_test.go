package agent_test

import (
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// takeOver makes standby know what m knew when a backup of it was taken: the host and its
// plan, but nothing that the host reported. Then m dies.
func (m *manager) takeOver(standby *manager) {
	m.mu.Lock()
	key, generation, plan := m.key, m.generation, m.plan
	retired := maps.Clone(m.retired)
	m.mu.Unlock()
	standby.set(func(s *manager) { s.key, s.generation, s.plan, s.retired = key, generation, plan, retired })
	_ = m.server.Listener.Close()
	m.server.CloseClientConnections()
}

// resting is a condition: the host has the plan, and all its reports are answered.
func resting(m *manager) bool { return taken(m) && m.serving == 1 }

// full is a condition: the manager was told everything that a host reports at its start.
func full(m *manager) bool {
	var hello, inventory, addresses, cleanliness bool
	for _, report := range m.reports {
		hello = hello || report.Hello != nil
		inventory = inventory || report.Inventory != nil
		addresses = addresses || report.Addresses != nil
		cleanliness = cleanliness || report.Cleanliness != nil
	}
	return hello && inventory && addresses && cleanliness
}

// When the manager dies, the next server may answer the same poll. It must be told
// everything, although no poll failed and its plan is the one that the host has.
func TestTellsEverythingToTheNextManager(t *testing.T) {
	r := newRig(t)
	r.standby = newManager(t)
	u := newUpdater()
	u.setReport(protocol.AgentUpdate{Version: "v9.9.9", State: protocol.StateFailed, Message: "no"})
	r.startWith(u)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	r.manager.await(t, "only a long poll is open", resting)
	r.manager.takeOver(r.standby)
	r.standby.await(t, "the next manager knows all facts", full)
	r.standby.await(t, "the next manager knows the update", func(m *manager) bool { return len(m.updates()) > 0 })
	r.standby.await(t, "the next manager knows the result", ended("a", protocol.StateSucceeded))
}

// The step of a running operation is reported once to each manager.
func TestTellsTheRunningStepToTheNextManager(t *testing.T) {
	r := newRig(t)
	r.standby = newManager(t)
	r.clock.ticks = make(chan struct{})
	r.hold = make(chan struct{})
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	r.clock.ticks <- struct{}{}
	r.manager.await(t, "the step is reported", ended("a", protocol.StateRunning))
	r.manager.await(t, "only a long poll is open", resting)
	r.manager.takeOver(r.standby)
	r.standby.await(t, "the next manager knows the step", ended("a", protocol.StateRunning))
	close(r.hold)
	r.standby.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
}

// A step whose report fails is reported again, although it stays the same.
func TestRepeatsAStepThatWasNotReported(t *testing.T) {
	r := newRig(t)
	r.clock.ticks = make(chan struct{})
	r.hold = make(chan struct{})
	r.start()
	r.manager.await(t, "the manager knows all facts", full)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	refused := make(chan struct{})
	var once sync.Once
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path != protocol.PathReport {
				return nil
			}
			once.Do(func() { close(refused) })
			return &protocol.Problem{Status: http.StatusServiceUnavailable}
		}
	})
	r.clock.ticks <- struct{}{}
	<-refused
	r.manager.set(func(m *manager) { m.refuse = nil })
	r.manager.await(t, "the step is reported", ended("a", protocol.StateRunning))
	close(r.hold)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
}

// The manager no longer asks about the operation that runs: an administrator has removed the
// host's claim. It refuses the step with everything else that is in the same report.
func TestUnwantedStepBlocksNoFacts(t *testing.T) {
	r := newRig(t)
	r.clock.ticks = make(chan struct{})
	r.hold = make(chan struct{})
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	r.manager.set(func(m *manager) { m.forgot = map[string]bool{"a": true} })
	r.clock.ticks <- struct{}{}
	r.manager.await(t, "the step is refused", func(m *manager) bool { return m.unwanted > 0 })
	r.changeAddress(t, "192.0.2.9")
	r.manager.await(t, "the new address is reported", hasReported("192.0.2.9"))
	close(r.hold)
}

// What the former manager acknowledges late says nothing about what the next one knows.
func TestLateAnswerOfTheFormerManager(t *testing.T) {
	r := newRig(t)
	r.readopt = 1000 * time.Hour
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	r.manager.await(t, "the manager knows all facts", full)
	answer, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.manager.set(func(m *manager) {
		m.holdReport = func() {
			once.Do(func() {
				close(held)
				<-answer
			})
		}
	})
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-held
	// The manager is restored from a backup: it does not know the host for a while.
	key := r.manager.known()
	r.manager.set(func(m *manager) { m.key = "" })
	for state := range r.statuses {
		if state == "Unknown" {
			break
		}
	}
	r.manager.set(func(m *manager) { m.key, m.reports, m.operations = key, nil, map[string]protocol.OperationReport{} })
	for state := range r.statuses {
		if state == "Connected" {
			break
		}
	}
	close(answer)
	r.manager.await(t, "the restored manager knows all facts", full)
	r.manager.await(t, "the restored manager knows the result", ended("a", protocol.StateSucceeded))
}

// A manager that denies knowing the host, fails and denies it again has not denied it all the
// time in between: it may have been restored from a backup.
func TestFailuresInBetweenPreventReadoption(t *testing.T) {
	r := newRig(t)
	r.readopt = time.Minute // each of the waits between two polls is longer
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	refusals := 0
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path != protocol.PathPlan {
				return nil
			}
			overloaded := false
			r.manager.set(func(*manager) {
				refusals++
				overloaded = refusals%2 == 0
			})
			if overloaded {
				return &protocol.Problem{Title: "Overloaded", Status: http.StatusServiceUnavailable}
			}
			return &protocol.Problem{Type: protocol.ProblemUnknownHost, Title: "Unknown host", Status: http.StatusForbidden}
		}
	})
	r.manager.want(nil, protocol.Desired{Hostname: "node-1"})
	r.manager.await(t, "the host was refused often", func(*manager) bool { return refusals >= 100 })
	if n := r.manager.count(&r.manager.enrolments); n != 1 {
		t.Errorf("the host enrolled %d times", n)
	}
}

// The connection from a former address may be dead, which the host would notice only after
// a minute. So a change of the address between two polls counts for the next one.
func TestNewAddressBetweenTwoPolls(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	former := r.manager.from()
	var once sync.Once
	r.machine.mu.Lock()
	r.renamed = func() { once.Do(func() { r.changeAddress(t, "192.0.2.9") }) }
	r.machine.mu.Unlock()
	r.manager.want(nil, protocol.Desired{Hostname: "node-1"})
	r.manager.await(t, "the host has the plan", taken)
	if r.manager.from() == former {
		t.Error("the next poll uses the former connection")
	}
}

// A report under way keeps the former connection open. New calls must not use it.
func TestNewAddressDuringAReport(t *testing.T) {
	r := newRig(t)
	answer, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.manager.holdReport = func() {
		once.Do(func() {
			close(held)
			<-answer
		})
	}
	r.start()
	<-held
	r.manager.await(t, "a long poll is open", taken)
	former := r.manager.from()
	r.changeAddress(t, "192.0.2.9")
	r.manager.await(t, "the host polls over another connection", func(m *manager) bool { return m.polledFrom != former })
	close(answer)
	r.manager.await(t, "the new address is reported", func(m *manager) bool {
		last := len(m.reports) - 1
		return last >= 0 && len(m.reports[last].Addresses) == 1 && m.reports[last].Addresses[0].Address == "192.0.2.9"
	})
}

// from returns the address that the latest poll came from.
func (m *manager) from() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.polledFrom
}

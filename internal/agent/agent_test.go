package agent_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

var errMalformed = errors.New("line 3: malformed")

func bootstrapOf(id string) *protocol.Operation {
	return &protocol.Operation{Type: protocol.OperationBootstrap, ID: id, ClusterName: "c", MachineName: "m"}
}

func resetOf(id string) *protocol.Operation {
	return &protocol.Operation{Type: protocol.OperationReset, ID: id}
}

func TestEnrolsBootstrapsAndReports(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.await(t, "the host enrols and reports its facts", func(m *manager) bool {
		return m.enrolments == 1 && m.cleanliness != nil && m.cleanliness.Clean
	})
	r.manager.mu.Lock()
	first := r.manager.reports[0]
	r.manager.mu.Unlock()
	if first.Hello == nil || !slices.Equal(first.Hello.Capabilities, []protocol.Capability{
		protocol.CapabilityBootstrap, protocol.CapabilityReset, protocol.CapabilityRotate, protocol.CapabilityReboot, protocol.CapabilityLogs, protocol.CapabilityFollow,
	}) {
		t.Errorf("hello is %+v", first.Hello)
	}
	if first.Inventory == nil || first.Inventory.MachineID != "m" || len(first.Addresses) != 1 {
		t.Errorf("the first report lacks facts: %+v", first)
	}
	r.manager.want(bootstrapOf("a"), protocol.Desired{Hostname: "node-1", ProviderID: "elemental://1"})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	r.manager.await(t, "the agent reports an unclean host", func(m *manager) bool { return !m.cleanliness.Clean })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if r.hostname != "node-1" || !slices.Equal(r.linked, []string{"elemental://1"}) {
		t.Errorf("hostname %q, linked %q", r.hostname, r.linked)
	}
	if r.scripts["operations/bootstrap-a"] != 1 {
		t.Errorf("scripts ran: %v", r.scripts)
	}
	if _, err := r.disk.Read("operations/bootstrap-a/data"); err == nil {
		t.Error("the bootstrap data is still on the disk")
	}
}

func TestRestartRunsNothingAgain(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{ProviderID: "elemental://1"})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// A manager that was restored from a backup does not know the result.
	r.manager.set(func(m *manager) { m.operations = map[string]protocol.OperationReport{} })
	r.start()
	r.manager.await(t, "the agent reports the result again", ended("a", protocol.StateSucceeded))
	if r.scripts["operations/bootstrap-a"] != 1 || r.manager.enrolments != 1 {
		t.Errorf("ran %v, enrolled %d times", r.scripts, r.manager.enrolments)
	}
}

// This machine has become a host whose bootstrap another machine has run. It does not run it again, also
// after a manager has lost its status, and tells that manager when it was.
func TestBootstrapOfAnotherMachine(t *testing.T) {
	r := newRig(t)
	r.start()
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	known := bootstrapOf("a")
	known.SucceededAt = &at
	r.manager.want(known, protocol.Desired{})
	r.manager.await(t, "the host has the plan", taken)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the agent reports the result", ended("a", protocol.StateSucceeded))
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if len(r.scripts) > 0 || r.manager.fetches > 0 {
		t.Errorf("ran %v, fetched %d times", r.scripts, r.manager.fetches)
	}
	if got := r.manager.operations["a"].FinishedAt; got == nil || !got.Equal(at) {
		t.Errorf("it has succeeded at %v", got)
	}
}

func TestStopLeavesTheScriptRunning(t *testing.T) {
	r := newRig(t)
	r.hold = make(chan struct{})
	stop := r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// The plan no longer names the bootstrap. The agent finishes it nevertheless.
	r.manager.want(nil, protocol.Desired{})
	close(r.hold)
	r.start()
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if r.scripts["operations/bootstrap-a"] != 1 || r.manager.fetches != 1 {
		t.Errorf("ran %v, fetched %d times", r.scripts, r.manager.fetches)
	}
}

// The agent pauses for nothing before it reports a failure.
func TestFailureIsReportedAtOnce(t *testing.T) {
	r := newRig(t)
	r.fail = errors.New("exit status 1")
	pauses := r.clock.recordPauses()
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the bootstrap failed", ended("a", protocol.StateFailed))
	noPauses(t, pauses)
	if report := r.manager.outcome("a"); report.Step != "runcmd" || report.Message != "exit status 1" || report.FinishedAt == nil {
		t.Errorf("reported %+v", report)
	}
}

func TestRefusesInvalidBootstraps(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"malformed data":       func(r *rig) { r.manager.data = []byte("malformed") },
		"a host in use before": func(r *rig) { r.dirty = []string{"process kubelet"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			prepare(r)
			r.start()
			r.manager.want(bootstrapOf("a"), protocol.Desired{})
			r.manager.await(t, "the bootstrap failed", ended("a", protocol.StateFailed))
			if len(r.scripts) > 0 || len(r.linked) > 0 {
				t.Errorf("scripts %v and provider IDs %v, want none", r.scripts, r.linked)
			}
			if report := r.manager.outcome("a"); report.Step != "check" {
				t.Errorf("reported %+v", report)
			}
		})
	}
}

func TestUnknownOperationIsUnsupported(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.want(&protocol.Operation{Type: "Fly", ID: "a"}, protocol.Desired{})
	r.manager.await(t, "the operation is refused", ended("a", protocol.StateUnsupported))
}

func TestReportsProgressPeriodically(t *testing.T) {
	r := newRig(t)
	r.clock.ticks = make(chan struct{})
	r.hold = make(chan struct{})
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	if state := r.manager.heard("a"); state != "" {
		t.Errorf("reported %s before ten seconds", state)
	}
	for r.manager.heard("a") == "" {
		r.clock.ticks <- struct{}{}
		if r.manager.heard("a") == "" {
			r.manager.await(t, "the agent reports a running bootstrap", ended("a", protocol.StateRunning))
		}
	}
	close(r.hold)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
}

func TestUnknownHostDoesNothing(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 && m.cleanliness != nil })
	key := r.manager.known()
	before := 0
	r.manager.set(func(m *manager) {
		m.key, before = "another key", m.polls
		m.plan.Operation, m.plan.Revision = resetOf("x"), "unknown"
	})
	for state := range r.statuses {
		if state == "Unknown" {
			break
		}
	}
	r.manager.set(func(m *manager) { m.key, m.plan = key, protocol.Plan{Revision: "back"} })
	r.manager.await(t, "the host polls with the same key again", func(m *manager) bool { return m.polls > before })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if r.manager.enrolments != 1 || r.reboots != 0 || len(r.manager.operations) != 0 {
		t.Errorf("enrolled %d times, rebooted %d times, reported %v", r.manager.enrolments, r.reboots, r.manager.operations)
	}
}

func TestReenrolsAfterReadoptTime(t *testing.T) {
	r := newRig(t)
	r.readopt = time.Minute // the fake clock does not wait
	r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	r.manager.set(func(m *manager) { m.key = "" })
	r.manager.await(t, "the host enrols again", func(m *manager) bool { return m.enrolments == 2 })
}

// A machine that is declared for another host does not wait for that time.
func TestDeclaredMachineEnrolsAtOnce(t *testing.T) {
	r := newRig(t)
	r.readopt = 1000 * time.Hour
	r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	r.manager.set(func(m *manager) {
		m.key = ""
		m.refuse = func(path string) *protocol.Problem {
			if path == protocol.PathPlan && m.count(&m.enrolments) == 1 {
				return &protocol.Problem{Type: protocol.ProblemUnknownHost, Status: 401, Enrol: true}
			}
			return nil
		}
	})
	r.manager.await(t, "the host enrols again", func(m *manager) bool { return m.enrolments == 2 })
}

func TestUnwantedResultDoesNotBlockReset(t *testing.T) {
	r := newRig(t)
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path == protocol.PathReport {
				return &protocol.Problem{Status: 503}
			}
			return nil
		}
	})
	stop := r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// Meanwhile an administrator fenced the host, so its claim no longer names the bootstrap.
	r.manager.set(func(m *manager) { m.refuse, m.forgot = nil, map[string]bool{"a": true} })
	r.manager.want(resetOf("b"), protocol.Desired{})
	r.start()
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	r.manager.await(t, "the agent reports a clean host", func(m *manager) bool { return m.cleanliness != nil && m.cleanliness.Clean })
}

func TestAddressesAreReportedWhenTheyChange(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	// A change of the address makes the host reconnect, and the first answer over the new
	// connection makes it report everything again. So no poll is answered.
	answer := make(chan struct{})
	t.Cleanup(func() { close(answer) })
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path == protocol.PathPlan {
				<-answer
			}
			return nil
		}
	})
	for _, address := range []string{"192.0.2.2", "192.0.2.3"} {
		r.changeAddress(t, address)
		r.manager.await(t, "the agent reports the new address", hasReported(address))
	}
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if last := r.manager.reports[len(r.manager.reports)-1]; last.Inventory != nil || last.Cleanliness != nil || last.Hello != nil {
		t.Errorf("reported what has not changed: %+v", last)
	}
}

// hasReported is a condition: the host has reported this address.
func hasReported(address string) func(*manager) bool {
	return func(m *manager) bool {
		return slices.ContainsFunc(m.reports, func(report protocol.Report) bool {
			return len(report.Addresses) == 1 && report.Addresses[0].Address == address
		})
	}
}

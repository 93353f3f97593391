package agent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func desiredLog(id string, of protocol.OperationType) protocol.Desired {
	return protocol.Desired{Hostname: "host", Log: &protocol.LogRequest{ID: id, Operation: of}}
}

// answered is a condition: the manager has the answer to a request.
func answered(id string) func(*manager) bool {
	return func(m *manager) bool { return len(m.hostLogs[id]) > 0 }
}

// The log of a failed bootstrap says what failed and what the script printed, without secrets. It
// outlives the process and the reset, and each request is answered once.
func TestThreat87_LogOfABootstrap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.machine.fail = errors.New("exit status 1: password=hunter2")
	r.manager.want(&protocol.Operation{Type: protocol.OperationBootstrap, ID: "claim-1", MachineName: "m1", ClusterName: "c1"}, protocol.Desired{Hostname: "host"})
	stop := r.start()
	r.manager.await(t, "the bootstrap has failed", func(m *manager) bool { return m.operations["claim-1"].State == protocol.StateFailed })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.manager.want(&protocol.Operation{Type: protocol.OperationReset, ID: "claim-1"}, desiredLog("1", protocol.OperationBootstrap))
	r.bootID = "second"
	r.start()
	r.manager.await(t, "the log is there", answered("1"))
	r.manager.want(nil, desiredLog("2", protocol.OperationUpgrade))
	r.manager.await(t, "the next answer is there", answered("2"))
	r.manager.set(func(m *manager) {
		if !slices.Contains(m.enrolled[0].Hello.Capabilities, protocol.CapabilityLogs) {
			t.Errorf("capabilities: %v", m.enrolled[0].Hello.Capabilities)
		}
		if len(m.hostLogs["1"]) != 1 || len(m.hostLogs["2"]) != 1 {
			t.Errorf("a request was answered again: %d, %d", len(m.hostLogs["1"]), len(m.hostLogs["2"]))
		}
		log := m.hostLogs["1"][0]
		text := string(log.Text)
		for _, part := range []string{"Bootstrap claim-1 for Machine m1 of Cluster c1: Failed", "runcmd", "exit status 1", "joining with [redacted]"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in the log: %s", part, text)
			}
		}
		if strings.Contains(text, "0123456789abcdef") || strings.Contains(text, "hunter2") {
			t.Errorf("the log has a secret: %s", text)
		}
		if log.OperationID != "claim-1" || log.State != protocol.StateFailed || log.Redactions != 2 {
			t.Errorf("got %s %s with %d redactions", log.OperationID, log.State, log.Redactions)
		}
		if other := m.hostLogs["2"][0]; other.OperationID != "" || len(other.Text) != 0 || other.Operation != protocol.OperationUpgrade {
			t.Errorf("a host without an upgrade has a log of one: %v", other)
		}
	})
}

// A person sees what a bootstrap that hangs has printed so far.
func TestLogOfARunningBootstrap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hold := make(chan struct{})
	defer close(hold)
	r.machine.hold = hold
	r.manager.want(&protocol.Operation{Type: protocol.OperationBootstrap, ID: "claim-1"}, protocol.Desired{Hostname: "host"})
	r.start()
	<-r.machine.started
	r.manager.want(&protocol.Operation{Type: protocol.OperationBootstrap, ID: "claim-1"}, desiredLog("1", protocol.OperationBootstrap))
	r.manager.await(t, "the log is there", answered("1"))
	r.manager.set(func(m *manager) {
		log := m.hostLogs["1"][0]
		if log.State != protocol.StateRunning || !strings.Contains(string(log.Text), "joining with") {
			t.Errorf("got %s: %s", log.State, log.Text)
		}
	})
}

// A manager that can't take the log gets it later.
func TestLogIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	refused := 0
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path != protocol.PathLog || refused == 2 {
				return nil
			}
			refused++
			return &protocol.Problem{Title: "Try again later", Status: 503}
		}
	})
	r.manager.want(nil, desiredLog("1", protocol.OperationReset))
	r.start()
	r.manager.await(t, "the answer is there", answered("1"))
}

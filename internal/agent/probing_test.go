package agent_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ago returns a server state that has lasted for d.
func (r *endpointRig) ago(d time.Duration, state probe.Result) probe.ServerState {
	return probe.ServerState{Result: state, Since: r.clock.Now().Add(-d), Conclusive: true}
}

func probed(host string) protocol.Desired {
	desired := endpointAt(host)
	desired.Endpoint.Probe = true
	return desired
}

func reachable(host string, is bool) func(*manager) bool {
	return lastEndpointReport(func(e protocol.EndpointReport) bool {
		return e.Probe != nil && e.Probe.Endpoint == host && e.Probe.Reachable == is
	})
}

func TestProbesTheEndpointOfThePlan(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.manager.await(t, "it follows the endpoint", follows("192.0.2.1"))
	if len(r.prober.began) != 0 {
		t.Error("probes although the plan does not ask for it")
	}
	r.manager.want(nil, probed("2001:db8::1"))
	first := <-r.prober.began
	if want := (probe.Target{Host: "2001:db8::1", Port: 6443, ServerPort: 6443}); first.target != want {
		t.Errorf("probes %+v", first.target)
	}
	first.show(probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the endpoint is reported as reachable", reachable("[2001:db8::1]:6443", true))
	// A new plan with the same endpoint does not restart the probes.
	again := probed("2001:db8::1")
	again.ProviderID = "elemental://1"
	r.manager.want(nil, again)
	r.manager.await(t, "the plan was taken", taken)
	if len(r.prober.began) != 0 || first.ctx.Err() != nil {
		t.Error("started new probes")
	}
	r.manager.want(nil, probed("192.0.2.2"))
	second := <-r.prober.began
	if first.ctx.Err() == nil {
		t.Error("still probes the former endpoint")
	}
	first.show(probe.State{Endpoint: r.ago(time.Hour, probe.Fails), APIServer: r.ago(0, probe.Fails)})
	r.changeAddress(t, "192.0.2.9")
	r.manager.await(t, "the agent reports the new address", func(m *manager) bool {
		last := m.reports[len(m.reports)-1]
		return len(last.Addresses) == 1 && last.Addresses[0].Address == "192.0.2.9"
	})
	second.show(probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the new endpoint is reported as reachable", reachable("192.0.2.2:6443", true))
	r.manager.want(nil, endpointAt("192.0.2.2"))
	<-second.ctx.Done()
	r.manager.await(t, "the agent reports no probes", lastEndpointReport(func(e protocol.EndpointReport) bool { return e.Probe == nil && e.APIServer == nil }))
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	for _, report := range r.manager.endpoints() {
		if report.Probe != nil && !report.Probe.Reachable {
			t.Errorf("reported a state of the former probes: %+v", report.Probe)
		}
	}
}

// After a restart of the agent, a report without probe results would erase the results
// that the manager has.
func TestReportsNothingBeforeProbeResults(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	r.applier.awaitCall(t, "192.0.2.1")
	at.show(probe.State{Endpoint: probe.ServerState{}, APIServer: r.ago(0, probe.Answers), CertificateNames: []string{"192.0.2.7"}})
	r.manager.await(t, "the plan was taken", taken)
	began := r.clock.Now()
	at.show(probe.State{
		Endpoint:  probe.ServerState{Result: probe.Fails, Since: began.Add(-90 * time.Second), Conclusive: true, Message: strings.Repeat("ü", 400)},
		APIServer: probe.ServerState{Result: probe.Answers, Since: began.Add(-10 * time.Second), Conclusive: true}, CertificateNames: []string{"192.0.2.7", "kubernetes"},
	})
	r.manager.await(t, "the endpoint is reported as unreachable", reachable("192.0.2.1:6443", false))
	passed := int32(r.clock.Now().Sub(began)/time.Second) + 1
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	for _, report := range r.manager.endpoints() {
		switch {
		case report == protocol.EndpointReport{}: // from before the plan
		case report.Probe == nil || report.APIServer == nil:
			t.Errorf("reported %+v", report)
		case report.Kubeconfigs != "192.0.2.1" || !report.APIServer.Ready || len(report.APIServer.CertificateNames) != 2:
			t.Errorf("reported %+v, %+v", report, report.APIServer)
		case report.Probe.ForSeconds < 90 || report.Probe.ForSeconds > 90+passed || report.APIServer.ForSeconds < 10 || report.APIServer.ForSeconds > 10+passed:
			t.Errorf("dead for %d s, alive for %d s", report.Probe.ForSeconds, report.APIServer.ForSeconds)
		case len(report.Probe.Message) > protocol.MaxProbeMessageBytes || !strings.HasSuffix(report.Probe.Message, "ü…"):
			t.Errorf("message is %q", report.Probe.Message)
		}
	}
}

// ForSeconds is computed when the agent sends the report.
func TestReportsDurationAtTimeOfReport(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the endpoint is reported as reachable", reachable("192.0.2.1:6443", true))
	r.manager.await(t, "only a long poll is open", resting)
	failing := probe.State{Endpoint: r.ago(0, probe.Fails), APIServer: r.ago(0, probe.Answers)}
	var once sync.Once
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) (refused *protocol.Problem) {
			if path != protocol.PathReport {
				return nil
			}
			// An hour passes before the agent gets the answer, and so before it reports again.
			once.Do(func() {
				r.clock.advance(time.Hour)
				refused = &protocol.Problem{Status: 503}
			})
			return refused
		}
	})
	at.show(failing)
	r.manager.await(t, "the agent reports the failure with its duration", lastEndpointReport(func(e protocol.EndpointReport) bool {
		return e.Probe != nil && !e.Probe.Reachable && e.Probe.ForSeconds >= 3600
	}))
}

// A manager may have received a report although its answer is lost. What has changed back
// since must be reported again.
func TestReportsAgainWhatWasNotAnswered(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	well := probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)}
	at.show(well)
	r.manager.await(t, "the endpoint is reported as reachable", reachable("192.0.2.1:6443", true))
	r.manager.await(t, "only a long poll is open", resting)
	received, hasChangedBack := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.manager.set(func(m *manager) {
		m.lose = loseFirst(protocol.PathReport)
		m.holdReport = func() {
			once.Do(func() {
				close(received)
				<-hasChangedBack
			})
		}
	})
	at.show(probe.State{Endpoint: r.ago(0, probe.Fails), APIServer: r.ago(0, probe.Answers)})
	<-received
	at.show(well)
	close(hasChangedBack)
	r.manager.await(t, "the endpoint is reported as reachable again", reachable("192.0.2.1:6443", true))
}

// loseFirst loses the answer to the first request of the path.
func loseFirst(path string) func(string) bool {
	var once sync.Once
	return func(requested string) (isLost bool) {
		if requested == path {
			once.Do(func() { isLost = true })
		}
		return isLost
	}
}

// A manager that was restored from a backup does not know earlier reports.
func TestReportsProbesAgainAfterAReconnect(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.State{Endpoint: r.ago(0, probe.Fails), APIServer: r.ago(0, probe.Fails)})
	r.manager.await(t, "the endpoint is reported as unreachable", reachable("192.0.2.1:6443", false))
	key := r.manager.known()
	r.manager.set(func(m *manager) { m.key = "" })
	for state := range r.statuses {
		if state == "Unknown" {
			break
		}
	}
	r.manager.set(func(m *manager) { m.key, m.reports = key, nil })
	r.manager.await(t, "the agent reports the probe again", reachable("192.0.2.1:6443", false))
	if at.ctx.Err() != nil {
		t.Error("the disconnection ended the probes")
	}
}

func TestReportsProblemsOfProbing(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.State{
		Endpoint: probe.ServerState{Conclusive: true, Message: "no CA"}, APIServer: probe.ServerState{Conclusive: true, Message: "no address"},
	})
	r.manager.await(t, "the agent reports the reason", lastEndpointReport(func(e protocol.EndpointReport) bool {
		return e.Probe == nil && e.APIServer == nil && strings.Contains(e.Message, "no CA") && strings.Contains(e.Message, "no address")
	}))
}

// Failover depends on probe results, so the agent pauses for nothing before it reports one.
func TestReportsProbesAtOnce(t *testing.T) {
	r := newNode(t)
	pauses := r.clock.recordPauses()
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	for i := range 20 {
		state := probe.Answers
		if i%2 == 1 {
			state = probe.Fails
		}
		at.show(probe.State{Endpoint: r.ago(0, state), APIServer: r.ago(0, probe.Answers)})
		r.manager.await(t, "the agent reports the probe", reachable("192.0.2.1:6443", state == probe.Answers))
	}
	noPauses(t, pauses)
}

// A reset ends the probes: the host's own API server is about to die.
func TestResetEndsProbes(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	r.manager.want(resetOf("b"), protocol.Desired{})
	<-at.ctx.Done()
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	if len(r.prober.began) != 0 {
		t.Error("started new probes")
	}
}

// The manager asks for a report. The host reports what has not changed, once.
func TestReportsTheEndpointWhenAsked(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	first := <-r.prober.began
	first.show(probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	// The probes are reported even before the endpoint is applied, and applying it is a change of its own.
	r.manager.await(t, "the endpoint is reported as applied and reachable", func(m *manager) bool {
		return follows("192.0.2.1")(m) && reachable("192.0.2.1:6443", true)(m)
	})
	for range 2 {
		var endpoints, all int
		r.manager.set(func(m *manager) { endpoints, all, m.asks = len(m.endpoints()), len(m.reports), true })
		r.manager.await(t, "the endpoint is reported again", func(m *manager) bool { return len(m.endpoints()) == endpoints+1 })
		r.manager.await(t, "it is the same", reachable("192.0.2.1:6443", true))
		r.manager.await(t, "nothing else is reported", func(m *manager) bool {
			last := m.reports[len(m.reports)-1]
			return len(m.reports) == all+1 && last.Hello == nil && last.Inventory == nil && last.Addresses == nil && last.Cleanliness == nil
		})
	}
	if len(r.prober.began) != 0 || first.ctx.Err() != nil {
		t.Error("a question restarts the probes")
	}
}

func TestReportsEndpointCapabilities(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	r.manager.await(t, "the host is enrolled", func(m *manager) bool { return m.enrolments == 1 })
	capabilities := r.manager.enrolled[0].Hello.Capabilities
	want := []protocol.Capability{protocol.CapabilityEndpoint, protocol.CapabilityFiles, protocol.CapabilityReportEndpoint, protocol.CapabilityLogs, protocol.CapabilityFollow}
	if n := len(capabilities); n < len(want) || !slices.Equal(capabilities[n-len(want):], want) {
		t.Errorf("capabilities are %q", capabilities)
	}
}

// The port of a local endpoint is that of the host's forwarder, so an API server that
// names no port has the default one. The manager is told where others reach it.
func TestReportsTheAddressOfTheAPIServer(t *testing.T) {
	r := newNode(t)
	r.start()
	desired := probed("shop-endpoint.tenant.svc.cluster.local")
	desired.Endpoint.Port, desired.Endpoint.Local = 16443, &protocol.LocalEndpoint{}
	r.manager.want(nil, desired)
	at := <-r.prober.began
	if want := (probe.Target{Host: desired.Endpoint.Host, Port: 16443, ServerPort: 6443}); at.target != want {
		t.Errorf("probes %+v", at.target)
	}
	at.show(probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers), Address: "192.0.2.7:6443"})
	r.manager.await(t, "the address is reported", lastEndpointReport(func(e protocol.EndpointReport) bool {
		return e.APIServer != nil && e.APIServer.Address == "192.0.2.7:6443"
	}))
}

package agent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ago is a verdict that has held for as long.
func (r *endpointRig) ago(d time.Duration, state probe.State) probe.Verdict {
	return probe.Verdict{State: state, Since: r.clock.Now().Add(-d), Settled: true}
}

func probed(host string) protocol.Desired {
	desired := endpointAt(host)
	desired.Endpoint.Probe = true
	return desired
}

func reachable(host string, is bool) func(*manager) bool {
	return toldEndpoint(func(e protocol.EndpointReport) bool {
		return e.Probe != nil && e.Probe.Endpoint == host && e.Probe.Reachable == is
	})
}

func TestProbesWhatThePlanSays(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.manager.await(t, "it follows the endpoint", follows("192.0.2.1"))
	if len(r.prober.began) != 0 {
		t.Error("probes although the plan doesn't say so")
	}
	r.manager.want(nil, probed("2001:db8::1"))
	first := <-r.prober.began
	if first.host != "2001:db8::1" || first.port != 6443 {
		t.Errorf("probes %s port %d", first.host, first.port)
	}
	first.show(probe.Sight{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the endpoint is known to answer", reachable("[2001:db8::1]:6443", true))
	// The same plan for other reasons begins nothing anew.
	again := probed("2001:db8::1")
	again.ProviderID = "elemental://1"
	r.manager.want(nil, again)
	r.manager.await(t, "the plan was taken", taken)
	if len(r.prober.began) != 0 || first.ctx.Err() != nil {
		t.Error("began anew")
	}
	r.manager.want(nil, probed("192.0.2.2"))
	second := <-r.prober.began
	if first.ctx.Err() == nil {
		t.Error("goes on with the former endpoint")
	}
	first.show(probe.Sight{Endpoint: r.ago(time.Hour, probe.Fails), APIServer: r.ago(0, probe.Fails)})
	r.mu.Lock()
	r.addresses = []protocol.Address{{Type: protocol.AddressInternalIP, Address: "192.0.2.9"}}
	changed := r.changed
	r.mu.Unlock()
	changed()
	r.manager.await(t, "something else is told", func(m *manager) bool {
		last := m.reports[len(m.reports)-1]
		return len(last.Addresses) == 1 && last.Addresses[0].Address == "192.0.2.9"
	})
	second.show(probe.Sight{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the new endpoint is known to answer", reachable("192.0.2.2:6443", true))
	r.manager.want(nil, endpointAt("192.0.2.2"))
	<-second.ctx.Done()
	r.manager.await(t, "nothing is known of it any more", toldEndpoint(func(e protocol.EndpointReport) bool { return e.Probe == nil && e.APIServer == nil }))
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	for _, told := range r.manager.endpoints() {
		if told.Probe != nil && !told.Probe.Reachable {
			t.Errorf("told what the former probes said: %+v", told.Probe)
		}
	}
}

// A report without probes would take away what the manager knows from before a
// restart of the agent.
func TestTellsNothingBeforeItKnows(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	r.keeper.until(t, "192.0.2.1")
	at.show(probe.Sight{Endpoint: probe.Verdict{}, APIServer: r.ago(0, probe.Answers), CertificateNames: []string{"192.0.2.7"}})
	r.manager.await(t, "the plan was taken", taken)
	at.show(probe.Sight{
		Endpoint:  probe.Verdict{State: probe.Fails, Since: r.clock.Now().Add(-90 * time.Second), Settled: true, Message: strings.Repeat("ü", 400)},
		APIServer: r.ago(10*time.Second, probe.Answers), CertificateNames: []string{"192.0.2.7", "kubernetes"},
	})
	r.manager.await(t, "the endpoint is known to be dead", reachable("192.0.2.1:6443", false))
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	for _, told := range r.manager.endpoints() {
		switch {
		case told == protocol.EndpointReport{}: // of before the plan
		case told.Probe == nil || told.APIServer == nil:
			t.Errorf("told %+v", told)
		case told.Kubeconfigs != "192.0.2.1" || !told.APIServer.Ready || len(told.APIServer.CertificateNames) != 2:
			t.Errorf("told %+v, %+v", told, told.APIServer)
		case told.Probe.ForSeconds < 90 || told.Probe.ForSeconds > 95 || told.APIServer.ForSeconds < 10 || told.APIServer.ForSeconds > 15:
			t.Errorf("dead for %d s, alive for %d s", told.Probe.ForSeconds, told.APIServer.ForSeconds)
		case len(told.Probe.Message) > protocol.MaxProbeMessageBytes || !strings.HasSuffix(told.Probe.Message, "ü…"):
			t.Errorf("says %q", told.Probe.Message)
		}
	}
}

// How long something has been so is counted when the report leaves.
func TestTellsForHowLongWhenItIsTold(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.Sight{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the endpoint is known to answer", reachable("192.0.2.1:6443", true))
	refused := make(chan struct{}, 1000)
	r.manager.set(func(m *manager) {
		m.refuse = func(path string) *protocol.Problem {
			if path != protocol.PathReport {
				return nil
			}
			refused <- struct{}{}
			return &protocol.Problem{Status: 503}
		}
	})
	at.show(probe.Sight{Endpoint: r.ago(0, probe.Fails), APIServer: r.ago(0, probe.Answers)})
	<-refused
	r.clock.mu.Lock()
	r.clock.offset += time.Hour
	r.clock.mu.Unlock()
	r.manager.set(func(m *manager) { m.refuse = nil })
	r.manager.await(t, "the death is told late", toldEndpoint(func(e protocol.EndpointReport) bool {
		return e.Probe != nil && !e.Probe.Reachable && e.Probe.ForSeconds >= 3600
	}))
}

// A manager that was restored knows nothing of what it was told.
func TestTellsProbesAgainAfterAReconnect(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.Sight{Endpoint: r.ago(0, probe.Fails), APIServer: r.ago(0, probe.Fails)})
	r.manager.await(t, "the endpoint is known to be dead", reachable("192.0.2.1:6443", false))
	key := r.manager.known()
	r.manager.set(func(m *manager) { m.key = "" })
	for state := range r.statuses {
		if state == "Unknown" {
			break
		}
	}
	r.manager.set(func(m *manager) { m.key, m.reports = key, nil })
	r.manager.await(t, "it is told again", reachable("192.0.2.1:6443", false))
	if at.ctx.Err() != nil {
		t.Error("the probes were ended by the manager's absence")
	}
}

func TestProblemsOfProbingAreTold(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.Sight{
		Endpoint: probe.Verdict{Settled: true, Message: "no CA"}, APIServer: probe.Verdict{Settled: true, Message: "no address"},
	})
	r.manager.await(t, "the reason is told", toldEndpoint(func(e protocol.EndpointReport) bool {
		return e.Probe == nil && e.APIServer == nil && strings.Contains(e.Message, "no CA") && strings.Contains(e.Message, "no address")
	}))
}

// What a manager moves an endpoint by reaches it at once; by the real clock.
func TestAProbeIsToldAtOnce(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, probed("192.0.2.1"))
	at := <-r.prober.began
	var took []time.Duration
	for i := range 20 {
		state := probe.Answers
		if i%2 == 1 {
			state = probe.Fails
		}
		began := time.Now()
		at.show(probe.Sight{Endpoint: r.ago(0, state), APIServer: r.ago(0, probe.Answers)})
		r.manager.await(t, "it is told", reachable("192.0.2.1:6443", state == probe.Answers))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	half, most := took[len(took)/2], took[len(took)-1]
	t.Logf("told within %s, half of them within %s", most.Round(time.Microsecond), half.Round(time.Microsecond))
	// The slowest tell how busy the machine is.
	if half > 100*time.Millisecond {
		t.Error("that is too long")
	}
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
		t.Error("began anew")
	}
}

func TestTellsThatItKeepsEndpoints(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	r.manager.await(t, "the host is enrolled", func(m *manager) bool { return m.enrolments == 1 })
	capabilities := r.manager.enrolled[0].Hello.Capabilities
	want := []protocol.Capability{protocol.CapabilityEndpoint, protocol.CapabilityFiles}
	if n := len(capabilities); n < 2 || capabilities[n-2] != want[0] || capabilities[n-1] != want[1] {
		t.Errorf("says %q", capabilities)
	}
}

package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestAppliesTheEndpointOfThePlan(t *testing.T) {
	r := newNode(t)
	stop := r.start()
	desired := endpointAt("192.0.2.1")
	desired.Files = []protocol.File{pod}
	r.manager.want(nil, desired)
	if call := r.applier.awaitCall(t, "192.0.2.1"); !samePods(call.files) {
		t.Errorf("the files are %+v", call.files)
	}
	r.manager.await(t, "the manager knows", follows("192.0.2.1"))
	r.manager.want(nil, endpointAt("192.0.2.2"))
	if call := r.applier.awaitCall(t, "192.0.2.2"); call.files != nil {
		t.Errorf("a plan without files applied %+v", call.files)
	}
	r.manager.await(t, "the manager knows of the move", follows("192.0.2.2"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// A new process applies the stored plan without a manager.
	r.manager.set(func(m *manager) { m.refuse = func(string) *protocol.Problem { return &protocol.Problem{Status: 503} } })
	for len(r.applier.calls) > 0 {
		<-r.applier.calls
	}
	stop = r.start()
	if call := <-r.applier.calls; call.endpoint == nil || call.endpoint.Host != "192.0.2.2" {
		t.Errorf("began with %+v", call)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.manager.set(func(m *manager) { m.refuse, m.reports = nil, nil })
	r.start()
	r.manager.await(t, "the agent reports the endpoint again", follows("192.0.2.2"))
	r.manager.want(nil, protocol.Desired{Files: []protocol.File{}})
	if call := r.applier.awaitCall(t, ""); call.files == nil {
		t.Error("an empty list of files became nil")
	}
	r.manager.await(t, "the agent reports no endpoint", follows(""))
}

// Without an endpoint in the plan the agent applies, prepares and probes nothing.
func TestPlanWithoutAnEndpoint(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	r.manager.await(t, "the plan was taken", taken)
	for len(r.applier.calls) > 0 {
		if call := <-r.applier.calls; call.endpoint != nil || call.files != nil {
			t.Errorf("applied %+v", call)
		}
	}
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	// A report that began before the first poll was answered is repeated.
	reports := slices.Compact(r.manager.endpoints())
	if len(reports) != 1 || reports[0] != (protocol.EndpointReport{}) || r.manager.reports[0].Endpoint == nil {
		t.Errorf("reported %+v", reports)
	}
	if len(r.applier.prepared) > 0 || len(r.prober.began) > 0 {
		t.Error("prepared or probed something")
	}
}

// Endpoint files on a host that is not bootstrapped would make the host unclean. It
// could then neither be bootstrapped nor become free.
func TestLeavesACleanHostAlone(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	r.manager.want(nil, protocol.Desired{Endpoint: &protocol.Endpoint{Host: "192.0.2.1", Port: 6443, VIP: true, Probe: true}, Files: []protocol.File{pod}})
	r.manager.await(t, "the plan was taken", taken)
	r.manager.await(t, "the agent reports no endpoint", follows(""))
	if len(r.prober.began) > 0 {
		t.Error("probed before the bootstrap")
	}
	r.manager.want(bootstrapOf("a"), probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.State{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "the agent reports the endpoint", follows("192.0.2.1"))
	for len(r.applier.calls) > 0 {
		if call := <-r.applier.calls; call.endpoint != nil && call.endpoint.VIP || call.files != nil {
			t.Errorf("applied %+v", call)
		}
	}
}

// The agent ends if it cannot record the next step on its disk.
func TestEndsWhenApplierCannotWriteState(t *testing.T) {
	r := newNode(t)
	full := &state.WriteError{Name: "endpoint.json", Err: errors.New("no space left on device")}
	r.applier.setApply(func(context.Context) error { return errors.Join(full) })
	a, err := r.agent()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); !errors.Is(err, full) {
		t.Errorf("ended with %v", err)
	}
}

func TestAppliesTheEndpointPeriodically(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.manager.await(t, "the manager knows", follows("192.0.2.1"))
	for len(r.applier.calls) > 0 {
		<-r.applier.calls
	}
	before := r.clock.Now()
	for range 3 {
		r.clock.checks <- struct{}{}
		r.applier.awaitCall(t, "192.0.2.1")
	}
	if passed := r.clock.Now().Sub(before); passed < 14*time.Minute || passed > 16*time.Minute {
		t.Errorf("applied the endpoint three times in %s", passed)
	}
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	// A report that began before the first poll was answered is repeated.
	if reports := slices.Compact(r.manager.endpoints()); len(reports) > 2 {
		t.Errorf("reported the same endpoint again: %+v", reports)
	}
}

func TestRetriesUntilTheEndpointIsApplied(t *testing.T) {
	r := newNode(t)
	failures, room := 5, make(chan struct{})
	r.applier.setApply(func(ctx context.Context) error {
		if failures--; failures > 0 {
			return errors.New("no space left on device")
		}
		select {
		case <-room:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.manager.await(t, "the agent reports the failure", lastEndpointReport(func(e protocol.EndpointReport) bool { return e.Message == "no space left on device" }))
	close(room)
	r.manager.await(t, "the agent reports success", lastEndpointReport(func(e protocol.EndpointReport) bool {
		return e.Message == "" && e.Kubeconfigs == "192.0.2.1"
	}))
}

// Operations and Apply never run at the same time, and an operation cancels Apply.
func TestOperationsComeBeforeTheEndpoint(t *testing.T) {
	r := newNode(t)
	hangs := make(chan struct{})
	r.applier.setApply(func(ctx context.Context) error {
		select {
		case <-hangs:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.applier.awaitCall(t, "192.0.2.1")
	down := make(chan struct{})
	r.mu.Lock()
	r.goesDown = func() {
		if r.applier.addRunning(0) != 0 {
			t.Error("the reset rebooted during Apply")
		}
		close(down)
	}
	r.mu.Unlock()
	r.manager.want(resetOf("b"), endpointAt("192.0.2.1"))
	<-down
	for len(r.applier.calls) > 0 {
		<-r.applier.calls
	}
	r.manager.want(resetOf("b"), endpointAt("192.0.2.2"))
	r.manager.await(t, "the plan was taken", taken)
	if len(r.applier.calls) > 0 {
		t.Errorf("applied %+v during a reset", <-r.applier.calls)
	}
}

// A new plan with the same endpoint does not cancel Apply, so the kubelet does not
// restart twice. A plan with another endpoint cancels Apply.
func TestOnlyAnotherEndpointCancelsApply(t *testing.T) {
	r := newNode(t)
	ended, release := make(chan error, 10), make(chan struct{})
	r.applier.setApply(func(ctx context.Context) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		ended <- ctx.Err()
		return ctx.Err()
	})
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.start()
	r.applier.awaitCall(t, "192.0.2.1")
	for len(ended) > 0 {
		if err := <-ended; err == nil {
			t.Error("Apply without an endpoint was not cancelled")
		}
	}
	same := endpointAt("192.0.2.1")
	same.Servers = []string{r.manager.server.URL}
	r.manager.want(nil, same)
	r.manager.await(t, "the plan was taken", taken)
	if len(ended) > 0 {
		t.Error("a plan with the same endpoint cancelled Apply")
	}
	r.manager.want(nil, endpointAt("192.0.2.2"))
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	close(release)
	r.applier.awaitCall(t, "192.0.2.2")
	r.manager.await(t, "the manager knows", follows("192.0.2.2"))
}

func TestEndpointWaitsForTheBootstrap(t *testing.T) {
	r := newEndpointRig(t)
	r.hold = make(chan struct{})
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-r.started
	r.manager.want(bootstrapOf("a"), endpointAt("192.0.2.1"))
	r.manager.await(t, "the plan was taken", taken)
	for len(r.applier.calls) > 0 {
		if call := <-r.applier.calls; call.endpoint != nil {
			t.Error("applied during a bootstrap")
		}
	}
	close(r.hold)
	r.applier.awaitCall(t, "192.0.2.1")
	r.manager.await(t, "the manager knows", follows("192.0.2.1"))
}

// An update ends the process, so it waits for Apply.
func TestNoUpdateDuringApply(t *testing.T) {
	r := newNode(t)
	u := newUpdater()
	u.ensure = func(context.Context, *protocol.AgentRelease, func()) (time.Duration, error) {
		if r.applier.addRunning(0) != 0 {
			t.Error("updated during Apply")
		}
		return 0, nil
	}
	release := make(chan struct{})
	r.applier.setApply(func(context.Context) error {
		<-release
		return nil
	})
	r.startWith(u)
	desired := endpointAt("192.0.2.1")
	desired.Agent = &pinned
	r.manager.want(nil, desired)
	close(release)
	r.applier.awaitCall(t, "192.0.2.1")
	for release := range u.asked {
		if release != nil {
			break
		}
	}
}

// The timer of the next Apply interrupts a long operation such as a download of the
// agent.
func TestEndpointCheckInterruptsADownload(t *testing.T) {
	r := newNode(t)
	u := newUpdater()
	u.ensure = func(ctx context.Context, release *protocol.AgentRelease, _ func()) (time.Duration, error) {
		if release != nil {
			<-ctx.Done()
		}
		return 0, nil
	}
	r.startWith(u)
	desired := endpointAt("192.0.2.1")
	desired.Agent = &pinned
	r.manager.want(nil, desired)
	for release := range u.asked {
		if release != nil {
			break
		}
	}
	for len(r.applier.calls) > 0 {
		<-r.applier.calls
	}
	r.clock.checks <- struct{}{}
	r.applier.awaitCall(t, "192.0.2.1")
}

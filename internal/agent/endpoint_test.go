package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestKeepsTheEndpointOfThePlan(t *testing.T) {
	r := newNode(t)
	stop := r.start()
	desired := endpointAt("192.0.2.1")
	desired.Files = []protocol.File{pod}
	r.manager.want(nil, desired)
	if call := r.keeper.until(t, "192.0.2.1"); !samePods(call.files) {
		t.Errorf("the files are %+v", call.files)
	}
	r.manager.await(t, "the manager knows", follows("192.0.2.1"))
	r.manager.want(nil, endpointAt("192.0.2.2"))
	if call := r.keeper.until(t, "192.0.2.2"); call.files != nil {
		t.Errorf("removes files of which the plan says nothing: %+v", call.files)
	}
	r.manager.await(t, "the manager knows of the move", follows("192.0.2.2"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// What was desired holds without a manager, from the start on.
	r.manager.set(func(m *manager) { m.refuse = func(string) *protocol.Problem { return &protocol.Problem{Status: 503} } })
	for len(r.keeper.calls) > 0 {
		<-r.keeper.calls
	}
	stop = r.start()
	if call := <-r.keeper.calls; call.endpoint == nil || call.endpoint.Host != "192.0.2.2" {
		t.Errorf("began with %+v", call)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.manager.set(func(m *manager) { m.refuse, m.reports = nil, nil })
	r.start()
	r.manager.await(t, "a manager that lost its status is told again", follows("192.0.2.2"))
	r.manager.want(nil, protocol.Desired{Files: []protocol.File{}})
	if call := r.keeper.until(t, ""); call.files == nil {
		t.Error("an empty list has become one that is not known")
	}
	r.manager.await(t, "it follows none", follows(""))
}

// A manager, or a plan, that knows nothing of endpoints costs the host nothing.
func TestPlanWithoutAnEndpoint(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	r.manager.await(t, "the plan was taken", taken)
	for len(r.keeper.calls) > 0 {
		if call := <-r.keeper.calls; call.endpoint != nil || call.files != nil {
			t.Errorf("applied %+v", call)
		}
	}
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if told := r.manager.endpoints(); len(told) != 1 || r.manager.reports[0].Endpoint == nil {
		t.Errorf("told %+v", told)
	}
	if len(r.keeper.prepared) > 0 || len(r.prober.began) > 0 {
		t.Error("prepared or probed something")
	}
}

// What is written to a host that is no node would keep it from becoming one, and
// from being free again.
func TestLeavesACleanHostAlone(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	r.manager.want(nil, protocol.Desired{Endpoint: &protocol.Endpoint{Host: "192.0.2.1", Port: 6443, VIP: true, Probe: true}, Files: []protocol.File{pod}})
	r.manager.await(t, "the plan was taken", taken)
	r.manager.await(t, "it follows none", follows(""))
	if len(r.prober.began) > 0 {
		t.Error("probed before it was a node")
	}
	r.manager.want(bootstrapOf("a"), probed("192.0.2.1"))
	at := <-r.prober.began
	at.show(probe.Sight{Endpoint: r.ago(0, probe.Answers), APIServer: r.ago(0, probe.Answers)})
	r.manager.await(t, "it is a node", follows("192.0.2.1"))
	for len(r.keeper.calls) > 0 {
		if call := <-r.keeper.calls; call.endpoint != nil && call.endpoint.VIP || call.files != nil {
			t.Errorf("applied %+v", call)
		}
	}
}

// An agent that can't remember what it is about to do ends.
func TestEndsWhenTheKeeperCannotRemember(t *testing.T) {
	r := newNode(t)
	full := &state.WriteError{Name: "endpoint.json", Err: errors.New("no space left on device")}
	r.keeper.does(func(context.Context) error { return errors.Join(full) })
	a, err := r.agent()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); !errors.Is(err, full) {
		t.Errorf("ended with %v", err)
	}
}

func TestLooksAtTheEndpointNowAndThen(t *testing.T) {
	r := newNode(t)
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.manager.await(t, "the manager knows", follows("192.0.2.1"))
	for len(r.keeper.calls) > 0 {
		<-r.keeper.calls
	}
	before := r.clock.Now()
	for range 3 {
		r.clock.checks <- struct{}{}
		r.keeper.until(t, "192.0.2.1")
	}
	if passed := r.clock.Now().Sub(before); passed < 14*time.Minute || passed > 16*time.Minute {
		t.Errorf("looked three times in %s", passed)
	}
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if told := r.manager.endpoints(); len(told) > 2 {
		t.Errorf("told the same again: %+v", told)
	}
}

func TestTriesAgainUntilTheEndpointIsKept(t *testing.T) {
	r := newNode(t)
	failures, room := 5, make(chan struct{})
	r.keeper.does(func(ctx context.Context) error {
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
	r.manager.await(t, "the failure is told", toldEndpoint(func(e protocol.EndpointReport) bool { return e.Message == "no space left on device" }))
	close(room)
	r.manager.await(t, "the failure is over", toldEndpoint(func(e protocol.EndpointReport) bool {
		return e.Message == "" && e.Kubeconfigs == "192.0.2.1"
	}))
}

// Nothing else is done to the host while its endpoint is looked after, and the
// other way round; what has to be done ends it.
func TestOperationsComeBeforeTheEndpoint(t *testing.T) {
	r := newNode(t)
	hangs := make(chan struct{})
	r.keeper.does(func(ctx context.Context) error {
		select {
		case <-hangs:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	r.start()
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.keeper.until(t, "192.0.2.1")
	down := make(chan struct{})
	r.mu.Lock()
	r.goesDown = func() {
		if r.keeper.working(0) != 0 {
			t.Error("reset in the middle of it")
		}
		close(down)
	}
	r.mu.Unlock()
	r.manager.want(resetOf("b"), endpointAt("192.0.2.1"))
	<-down
	for len(r.keeper.calls) > 0 {
		<-r.keeper.calls
	}
	r.manager.want(resetOf("b"), endpointAt("192.0.2.2"))
	r.manager.await(t, "the plan was taken", taken)
	if len(r.keeper.calls) > 0 {
		t.Errorf("applied %+v during a reset", <-r.keeper.calls)
	}
}

// A kubelet that is being restarted is not restarted once more because a plan
// changed elsewhere; one with another endpoint comes first.
func TestOnlyAnotherEndpointEndsAnAttempt(t *testing.T) {
	r := newNode(t)
	ended, release := make(chan error, 10), make(chan struct{})
	r.keeper.does(func(ctx context.Context) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		ended <- ctx.Err()
		return ctx.Err()
	})
	r.manager.want(nil, endpointAt("192.0.2.1"))
	r.start()
	r.keeper.until(t, "192.0.2.1")
	for len(ended) > 0 {
		if err := <-ended; err == nil {
			t.Error("an attempt without the endpoint was let through")
		}
	}
	same := endpointAt("192.0.2.1")
	same.Servers = []string{r.manager.server.URL}
	r.manager.want(nil, same)
	r.manager.await(t, "the plan was taken", taken)
	if len(ended) > 0 {
		t.Error("ended by a plan that says the same")
	}
	r.manager.want(nil, endpointAt("192.0.2.2"))
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	close(release)
	r.keeper.until(t, "192.0.2.2")
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
	for len(r.keeper.calls) > 0 {
		if call := <-r.keeper.calls; call.endpoint != nil {
			t.Error("applied in the middle of a bootstrap")
		}
	}
	close(r.hold)
	r.keeper.until(t, "192.0.2.1")
	r.manager.await(t, "the manager knows", follows("192.0.2.1"))
}

// An update would end the process.
func TestNoUpdateInTheMiddleOfTheEndpoint(t *testing.T) {
	r := newNode(t)
	u := newUpdater()
	u.keep = func(context.Context, *protocol.AgentRelease, func()) (time.Duration, error) {
		if r.keeper.working(0) != 0 {
			t.Error("updated in the middle of it")
		}
		return 0, nil
	}
	release := make(chan struct{})
	r.keeper.does(func(context.Context) error {
		<-release
		return nil
	})
	r.startWith(u)
	desired := endpointAt("192.0.2.1")
	desired.Agent = &pinned
	r.manager.want(nil, desired)
	close(release)
	r.keeper.until(t, "192.0.2.1")
	for kept := range u.kept {
		if kept != nil {
			break
		}
	}
}

// The alarm for the next look interrupts what would take long, such as a
// download of the agent.
func TestEndpointIsLookedAtDuringADownload(t *testing.T) {
	r := newNode(t)
	u := newUpdater()
	u.keep = func(ctx context.Context, release *protocol.AgentRelease, _ func()) (time.Duration, error) {
		if release != nil {
			<-ctx.Done()
		}
		return 0, nil
	}
	r.startWith(u)
	desired := endpointAt("192.0.2.1")
	desired.Agent = &pinned
	r.manager.want(nil, desired)
	for kept := range u.kept {
		if kept != nil {
			break
		}
	}
	for len(r.keeper.calls) > 0 {
		<-r.keeper.calls
	}
	r.clock.checks <- struct{}{}
	r.keeper.until(t, "192.0.2.1")
}

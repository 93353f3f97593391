package agent_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// applied holds the arguments of a call of Apply or Prepare.
type applied struct {
	endpoint *protocol.Endpoint
	files    []protocol.File
}

// fakeApplier records the calls of Apply and Prepare.
type fakeApplier struct {
	machine *machine
	// calls receives each Apply at its begin, prepared each Prepare.
	calls, prepared chan applied

	mu sync.Mutex
	// running counts the current calls of Apply.
	running int
	// apply and prepare, if set, are called by Apply and Prepare.
	apply   func(context.Context) error
	prepare func(context.Context) error
}

func newFakeApplier(m *machine) *fakeApplier {
	return &fakeApplier{machine: m, calls: make(chan applied, 1000), prepared: make(chan applied, 1000)}
}

func (a *fakeApplier) addRunning(by int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running += by
	return a.running
}

func (a *fakeApplier) setApply(apply func(context.Context) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.apply = apply
}

func (a *fakeApplier) Apply(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) (report protocol.EndpointReport, err error) {
	a.addRunning(1)
	defer a.addRunning(-1)
	a.mu.Lock()
	apply := a.apply
	a.mu.Unlock()
	a.calls <- applied{endpoint, files}
	if apply != nil {
		err = apply(ctx)
	}
	if err != nil {
		report.Message = err.Error()
	}
	if endpoint != nil {
		report.Kubeconfigs = endpoint.Host
	}
	return report, err
}

// Prepare makes the host unclean, as a static Pod does.
func (a *fakeApplier) Prepare(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) error {
	a.prepared <- applied{endpoint, files}
	if len(files) > 0 {
		a.machine.mu.Lock()
		if len(a.machine.dirty) == 0 {
			a.machine.dirty = []string{"file " + files[0].Path}
		}
		a.machine.mu.Unlock()
	}
	if a.prepare != nil {
		return a.prepare(ctx)
	}
	return nil
}

// prober passes each call of Probe to the test, which then sends probe states.
type prober struct{ began chan probing }

type probing struct {
	target probe.Target
	ctx    context.Context // the test checks whether the probe has ended
	show   func(probe.State)
}

func (p *prober) Probe(ctx context.Context, target probe.Target, changed func(probe.State)) {
	p.began <- probing{target, ctx, changed}
	<-ctx.Done()
}

// endpointRig is a rig whose agent applies and probes endpoints.
type endpointRig struct {
	*rig
	applier *fakeApplier
	prober  *prober
}

func newEndpointRig(t *testing.T) *endpointRig {
	t.Helper()
	r := newRig(t)
	r.clock.checks = make(chan struct{})
	e := &endpointRig{rig: r, applier: newFakeApplier(r.machine), prober: &prober{began: make(chan probing, 100)}}
	r.with = func(o *agent.Options) {
		o.Applier, o.Prober = e.applier, e.prober
		if runner, ok := o.Runners[protocol.OperationBootstrap].(*bootstrap.Runner); ok {
			runner.Preparer, runner.Desired = e.applier, func() protocol.Desired { return o.Store.Plan().Desired }
		}
	}
	return e
}

// newNode returns an endpointRig with a bootstrapped host.
func newNode(t *testing.T) *endpointRig {
	t.Helper()
	r := newEndpointRig(t)
	r.dirty = []string{"file /etc/kubernetes/kubelet.conf"}
	return r
}

// awaitCall returns the first Apply whose endpoint has this host; an empty host
// means a call without an endpoint.
func (a *fakeApplier) awaitCall(t *testing.T, host string) applied {
	t.Helper()
	for {
		select {
		case call := <-a.calls:
			if call.endpoint == nil && host == "" || call.endpoint != nil && call.endpoint.Host == host {
				return call
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q was never applied", host)
		}
	}
}

// endpoints returns the endpoint reports that the manager received, in order.
func (m *manager) endpoints() []protocol.EndpointReport {
	var reports []protocol.EndpointReport
	for _, report := range m.reports {
		if report.Endpoint != nil {
			reports = append(reports, *report.Endpoint)
		}
	}
	return reports
}

// lastEndpointReport is a condition on the latest endpoint report.
func lastEndpointReport(condition func(protocol.EndpointReport) bool) func(*manager) bool {
	return func(m *manager) bool {
		reports := m.endpoints()
		return len(reports) > 0 && condition(reports[len(reports)-1])
	}
}

func follows(host string) func(*manager) bool {
	return lastEndpointReport(func(e protocol.EndpointReport) bool { return e.Kubeconfigs == host })
}

func endpointAt(host string) protocol.Desired {
	return protocol.Desired{Endpoint: &protocol.Endpoint{Host: host, Port: 6443}}
}

var pod = protocol.File{Path: "/etc/kubernetes/manifests/kube-vip.yaml", Mode: 0o600, Content: "kind: Pod\n"}

func samePods(files []protocol.File) bool { return slices.Equal(files, []protocol.File{pod}) }

package agent_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// applied is what a Keeper was told to apply.
type applied struct {
	endpoint *protocol.Endpoint
	files    []protocol.File
}

// keeper is what is done about the endpoint on the host under test.
type keeper struct {
	machine *machine
	// calls has each Apply as it begins, prepared each Prepare.
	calls, prepared chan applied

	mu sync.Mutex
	// works counts the calls that go on.
	works int
	// apply and prepare, where they are set, take part.
	apply   func(context.Context) error
	prepare func(context.Context) error
}

func newKeeper(m *machine) *keeper {
	return &keeper{machine: m, calls: make(chan applied, 1000), prepared: make(chan applied, 1000)}
}

func (k *keeper) working(by int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.works += by
	return k.works
}

func (k *keeper) does(apply func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.apply = apply
}

func (k *keeper) Apply(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) (report protocol.EndpointReport, err error) {
	k.working(1)
	defer k.working(-1)
	k.mu.Lock()
	apply := k.apply
	k.mu.Unlock()
	k.calls <- applied{endpoint, files}
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
func (k *keeper) Prepare(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) error {
	k.prepared <- applied{endpoint, files}
	if len(files) > 0 {
		k.machine.mu.Lock()
		if len(k.machine.dirty) == 0 {
			k.machine.dirty = []string{"file " + files[0].Path}
		}
		k.machine.mu.Unlock()
	}
	if k.prepare != nil {
		return k.prepare(ctx)
	}
	return nil
}

// prober sees what the test shows it.
type prober struct{ began chan probing }

type probing struct {
	host string
	port int32
	ctx  context.Context //nolint:containedctx // the test looks whether it is over
	show func(probe.Sight)
}

func (p *prober) Probe(ctx context.Context, host string, port int32, seen func(probe.Sight)) {
	p.began <- probing{host, port, ctx, seen}
	<-ctx.Done()
}

// endpointRig is a rig whose agent keeps and probes endpoints.
type endpointRig struct {
	*rig
	keeper *keeper
	prober *prober
}

func newEndpointRig(t *testing.T) *endpointRig {
	t.Helper()
	r := newRig(t)
	r.clock.checks = make(chan struct{})
	e := &endpointRig{rig: r, keeper: newKeeper(r.machine), prober: &prober{began: make(chan probing, 100)}}
	r.with = func(a *agent.Agent) {
		a.Keeper, a.Prober = e.keeper, e.prober
		if bootstrap, ok := a.Runners[protocol.OperationBootstrap].(*agent.Bootstrap); ok {
			bootstrap.Keeper, bootstrap.Desired = e.keeper, func() protocol.Desired { return a.Store.Plan().Desired }
		}
	}
	return e
}

// newNode is one whose host was bootstrapped.
func newNode(t *testing.T) *endpointRig {
	t.Helper()
	r := newEndpointRig(t)
	r.dirty = []string{"file /etc/kubernetes/kubelet.conf"}
	return r
}

// until returns the first call with an endpoint of this host, "" for none.
func (k *keeper) until(t *testing.T, host string) applied {
	t.Helper()
	for {
		select {
		case call := <-k.calls:
			if call.endpoint == nil && host == "" || call.endpoint != nil && call.endpoint.Host == host {
				return call
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%q was never applied", host)
		}
	}
}

// endpoints are what the manager was told of the endpoint, one after the other.
func (m *manager) endpoints() []protocol.EndpointReport {
	var told []protocol.EndpointReport
	for _, report := range m.reports {
		if report.Endpoint != nil {
			told = append(told, *report.Endpoint)
		}
	}
	return told
}

// toldEndpoint is a condition on the last that the manager was told.
func toldEndpoint(condition func(protocol.EndpointReport) bool) func(*manager) bool {
	return func(m *manager) bool {
		told := m.endpoints()
		return len(told) > 0 && condition(told[len(told)-1])
	}
}

func follows(host string) func(*manager) bool {
	return toldEndpoint(func(e protocol.EndpointReport) bool { return e.Kubeconfigs == host })
}

func endpointAt(host string) protocol.Desired {
	return protocol.Desired{Endpoint: &protocol.Endpoint{Host: host, Port: 6443}}
}

var pod = protocol.File{Path: "/etc/kubernetes/manifests/kube-vip.yaml", Mode: 0o600, Content: "kind: Pod\n"}

func samePods(files []protocol.File) bool { return slices.Equal(files, []protocol.File{pod}) }

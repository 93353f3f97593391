package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// fakeLocal is an endpoint that the host serves itself.
type fakeLocal struct {
	// kept is closed by the first Keep; running passes on what Run got.
	kept    chan struct{}
	running chan func()
}

func (l *fakeLocal) Keep(context.Context) (string, error) {
	close(l.kept)
	return "", errors.New("the port is taken")
}

func (l *fakeLocal) Run(ctx context.Context, changed func()) {
	l.running <- changed
	<-ctx.Done()
}

// The kubelet needs the endpoint before the manager answers, and whatever operation runs.
// Its failures are reported.
func TestLocalEndpointIsKeptWithoutAManager(t *testing.T) {
	r := newNode(t)
	local := &fakeLocal{kept: make(chan struct{}), running: make(chan func(), 1)}
	with := r.with
	r.with = func(o *agent.Options) {
		with(o)
		o.Local = local
	}
	r.manager.refuse = func(string) *protocol.Problem { return &protocol.Problem{Status: 503} }
	r.start()
	select {
	case <-local.kept:
	case <-time.After(time.Minute):
		t.Fatal("timed out waiting for the endpoint")
	}
	changed := <-local.running
	r.manager.set(func(m *manager) { m.refuse = nil })
	r.manager.await(t, "the agent says what it can", func(m *manager) bool { return len(m.enrolled) > 0 })
	r.manager.mu.Lock()
	if !slices.Contains(r.manager.enrolled[0].Hello.Capabilities, protocol.CapabilityLocalEndpoint) {
		t.Errorf("the agent can %v", r.manager.enrolled[0].Hello.Capabilities)
	}
	r.manager.mu.Unlock()
	r.applier.awaitCall(t, "")
	changed()
	r.applier.awaitCall(t, "")
}

// What the bootstrap needs comes from the plan that ordered it.
func TestLocalEndpointIsPreparedBeforeTheBootstrap(t *testing.T) {
	r := newEndpointRig(t)
	r.start()
	desired := endpointAt("shop.example.com")
	desired.Endpoint.Local = &protocol.LocalEndpoint{Backends: []string{"10.0.0.2:6443"}}
	r.manager.want(&protocol.Operation{Type: protocol.OperationBootstrap, ID: "b1"}, desired)
	r.manager.await(t, "the bootstrap has succeeded", ended("b1", protocol.StateSucceeded))
	prepared := <-r.applier.prepared
	if prepared.endpoint == nil || prepared.endpoint.Local == nil || len(prepared.endpoint.Local.Backends) != 1 {
		t.Errorf("prepared %+v", prepared.endpoint)
	}
}

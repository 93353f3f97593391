package agent_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// adopter is the Adopter of a rig. Each check waits for its answer.
type adopter struct {
	answers chan error
	// checks has what each check was of, and what it was for.
	checks chan string
}

func (a *adopter) Check(ctx context.Context, want protocol.Adoption) error {
	a.checks <- fmt.Sprintf("%s %s %t %s %s", want.NodeName, want.Endpoint, want.ControlPlane, want.Version, want.AuthorityHash)
	select {
	case err := <-a.answers:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newNodeRig returns a host that runs a Node, and its Adopter.
func newNodeRig(t *testing.T) (*rig, *adopter) {
	t.Helper()
	r, a := newRig(t), &adopter{answers: make(chan error), checks: make(chan string, 100)}
	r.dirty = []string{"process kubelet"}
	r.with = func(o *agent.Options) {
		o.CanAdopt = true
		if runner, ok := o.Runners[protocol.OperationBootstrap].(*bootstrap.Runner); ok {
			runner.Adopter = a
		}
	}
	return r, a
}

func adoptionOf(id string) *protocol.Operation {
	op := bootstrapOf(id)
	op.Adoption = &protocol.Adoption{
		NodeName: "node-1", ProviderID: "elemental://" + id, ControlPlane: true, AuthorityHash: "sha256:x", Endpoint: "192.0.2.1:6443", Version: "v1.36.2",
	}
	return op
}

// adopted is a check of the host node-1 for adoptionOf.
const adopted = "node-1 192.0.2.1:6443 true v1.36.2 sha256:x"

func TestAdoptsANode(t *testing.T) {
	t.Parallel()
	r, a := newNodeRig(t)
	stop := r.start()
	r.manager.want(adoptionOf("a"), protocol.Desired{})
	if got := <-a.checks; got != adopted {
		t.Errorf("got %q", got)
	}
	a.answers <- nil
	r.manager.await(t, "the adoption succeeded", ended("a", protocol.StateSucceeded))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.manager.enrolled[0].Hello.Capabilities, protocol.CapabilityAdopt) {
		t.Errorf("capabilities are %q", r.manager.enrolled[0].Hello.Capabilities)
	}
	if r.manager.fetches > 0 || len(r.scripts) > 0 || r.hostname != "" || !slices.Equal(r.dirty, []string{"process kubelet"}) {
		t.Errorf("fetched %d times, ran %v, host name %q, dirty %q", r.manager.fetches, r.scripts, r.hostname, r.dirty)
	}
	if !slices.Equal(r.linked, []string{"elemental://a"}) {
		t.Errorf("linked %q", r.linked)
	}
	r.start()
	// A reset cleans such a host too, though nobody knows what it had before its Node.
	r.manager.want(resetOf("b"), protocol.Desired{})
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	r.manager.await(t, "the host is clean", func(m *manager) bool { return m.cleanliness.Clean })
	if len(r.kept) != 1 || r.kept[0] != nil || len(a.checks) > 0 {
		t.Errorf("the reset has kept %q, %d more checks", r.kept, len(a.checks))
	}
}

// The record of an operation has the adoption, so that the agent needs no manager to continue.
func TestAdoptionAfterARestart(t *testing.T) {
	t.Parallel()
	r, a := newNodeRig(t)
	stop := r.start()
	r.manager.want(adoptionOf("a"), protocol.Desired{})
	<-a.checks
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.manager.want(nil, protocol.Desired{})
	r.start()
	if got := <-a.checks; got != adopted {
		t.Errorf("got %q", got)
	}
	a.answers <- nil
	r.manager.await(t, "the adoption succeeded", ended("a", protocol.StateSucceeded))
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if r.manager.fetches > 0 || !slices.Equal(r.linked, []string{"elemental://a"}) {
		t.Errorf("fetched %d times, linked %q", r.manager.fetches, r.linked)
	}
}

// An adoption waits for servers that are away, as long as it is wanted.
func TestAdoptionIsTriedAgain(t *testing.T) {
	t.Parallel()
	r, a := newNodeRig(t)
	r.start()
	away := fmt.Errorf("%w: etcd is away", operation.ErrNothingDone)
	r.manager.want(adoptionOf("a"), protocol.Desired{})
	for range 2 {
		a.answers <- away
	}
	<-a.checks
	r.manager.want(adoptionOf("b"), protocol.Desired{})
	r.manager.await(t, "the host has the plan", taken)
	a.answers <- away
	a.answers <- nil
	r.manager.await(t, "the adoption succeeded", ended("b", protocol.StateSucceeded))
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if r.manager.operations["a"].State.Final() || !slices.Equal(r.linked, []string{"elemental://b"}) {
		t.Errorf("linked %q", r.linked)
	}
}

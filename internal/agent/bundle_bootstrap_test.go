package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reset"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// fakeInstaller records what is installed on a machine.
type fakeInstaller struct {
	machine *machine

	mu sync.Mutex
	// has is true if the host has the programs; conflict is why it can't get them.
	has      bool
	conflict error
	// events are the calls, with the state of the host.
	events []string
}

func (i *fakeInstaller) add(event string) {
	i.machine.mu.Lock()
	scripts, clean := len(i.machine.scripts), len(i.machine.dirty) == 0
	i.machine.mu.Unlock()
	i.events = append(i.events, fmt.Sprintf("%s after %d scripts, clean %t", event, scripts, clean))
}

func (i *fakeInstaller) IsNeeded(context.Context, protocol.Bundle) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.has, nil
}

func (i *fakeInstaller) Install(_ context.Context, staged installation.Staged, progress func(string)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	progress("files")
	i.add("install " + staged.SHA256 + " from " + staged.Folder)
	i.has = i.conflict == nil
	return i.conflict
}

func (i *fakeInstaller) Remove(context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.add("remove")
	i.has = false
	return nil
}

func (i *fakeInstaller) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.events)
}

// withInstaller gives the agents of the rig a Stager and an Installer.
func withInstaller(r *rig) (*fakeStager, *fakeInstaller) {
	s, i := newFakeStager(), &fakeInstaller{machine: r.machine}
	r.with = func(o *agent.Options) {
		o.Stager = s
		if runner, ok := o.Runners[protocol.OperationBootstrap].(*bootstrap.Runner); ok {
			runner.Stager, runner.Installer = s, i
			runner.Desired = func() protocol.Desired { return o.Store.Plan().Desired }
		}
		if runner, ok := o.Runners[protocol.OperationReset].(*reset.Runner); ok {
			runner.Installation = i
		}
	}
	return s, i
}

func TestBootstrapInstallsTheBundle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, i := withInstaller(r)
	r.start()
	r.manager.want(bootstrapOf("a"), desiredBundle("v1"))
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if got := i.all(); !slices.Equal(got, []string{"install sum of v1 from /stage after 0 scripts, clean true"}) {
		t.Errorf("got %q", got)
	}
	// The reset removes it after the node.
	r.mu.Lock()
	r.dirty = []string{"process kubelet"}
	r.mu.Unlock()
	r.manager.want(resetOf("b"), desiredBundle("v1"))
	r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
	if got := i.all()[1:]; !slices.Equal(got, []string{"remove after 1 scripts, clean true"}) {
		t.Errorf("got %q", got)
	}
}

// A bootstrap waits for a bundle, as long as it takes, and takes the one that the plan has
// then.
func TestBootstrapWaitsForTheBundle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, i := withInstaller(r)
	s.attempt = func(_ context.Context, want protocol.Bundle, _ func(protocol.BundleState, string)) error {
		if want.Version == "v1" {
			return errors.New("the pinned digest is wrong")
		}
		return nil
	}
	r.start()
	r.manager.want(bootstrapOf("a"), desiredBundle("v1"))
	for attempts := 0; attempts < 3; {
		if <-s.calls == "v1" {
			attempts++
		}
	}
	r.manager.want(bootstrapOf("a"), desiredBundle("v2"))
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if got := i.all(); !slices.Equal(got, []string{"install sum of v2 from /stage after 0 scripts, clean true"}) {
		t.Errorf("got %q", got)
	}
}

func TestBootstrapsWithoutABundle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*rig, *fakeInstaller)
		desired protocol.Desired
		want    protocol.OperationState
		step    string
		events  int
	}{
		"none is desired":           {func(*rig, *fakeInstaller) {}, protocol.Desired{}, protocol.StateSucceeded, "", 0},
		"the host has the programs": {func(_ *rig, i *fakeInstaller) { i.has = true }, desiredBundle("v1"), protocol.StateSucceeded, "", 0},
		"the host is not clean":     {func(r *rig, _ *fakeInstaller) { r.dirty = []string{"process kubelet"} }, desiredBundle("v1"), protocol.StateFailed, "check", 0},
		"a file is in the way":      {func(_ *rig, i *fakeInstaller) { i.conflict = errors.New("in the way") }, desiredBundle("v1"), protocol.StateFailed, "install", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			_, i := withInstaller(r)
			test.prepare(r, i)
			r.start()
			r.manager.want(bootstrapOf("a"), test.desired)
			r.manager.await(t, "the bootstrap has ended", ended("a", test.want))
			if got := i.all(); len(got) != test.events || r.manager.operations["a"].Step != test.step {
				t.Errorf("got %q, step %q", got, r.manager.operations["a"].Step)
			}
		})
	}
}

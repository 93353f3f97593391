package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// upgrader is the runner of an upgrade whose step the test ends.
type upgrader struct {
	begun chan struct{}
	step  func(ctx context.Context) error
	// aborted receives the ID of an upgrade that was aborted.
	aborted chan string
}

func (u *upgrader) Run(ctx context.Context, _ state.Operation, _ func(string)) (operation.Result, error) {
	close(u.begun)
	return operation.Result{}, u.step(ctx)
}

func (u *upgrader) Abort(op state.Operation) error {
	u.aborted <- op.ID
	return nil
}

func (u *upgrader) Cleanup(state.Operation) error { return nil }

// A reset supersedes an upgrade: at the end of its step, or when the step has had its time.
func TestResetSupersedesAnUpgrade(t *testing.T) {
	for name, isPolite := range map[string]bool{"after its step": true, "after its time": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			over := make(chan struct{})
			u := &upgrader{begun: make(chan struct{}), aborted: make(chan string, 1), step: func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-over:
					return operation.ErrSuperseded
				}
			}}
			r.with = func(o *agent.Options) { o.Runners[protocol.OperationNodeUpgrade] = u }
			grace := make(chan struct{})
			r.clock.checks = grace
			r.start()
			r.manager.want(&protocol.Operation{Type: protocol.OperationNodeUpgrade, ID: "a", NodeUpgrade: &protocol.NodeUpgrade{}}, protocol.Desired{})
			<-u.begun
			r.manager.want(resetOf("b"), protocol.Desired{})
			r.manager.await(t, "the host knows of the reset", taken)
			if isPolite {
				close(over)
				grace = nil
			}
			for id := ""; id == ""; {
				select {
				case grace <- struct{}{}: // the time of the step, or of something else, is over
				case id = <-u.aborted:
				}
			}
			r.manager.await(t, "the reset succeeded", ended("b", protocol.StateSucceeded))
			r.manager.await(t, "the upgrade ended", func(m *manager) bool {
				report := m.operations["a"]
				return report.State == protocol.StateFailed && strings.Contains(report.Message, "reset") && protocol.UpgradeOutcomeOf(report.Message) == ""
			})
		})
	}
}

// A host says whether its Node can be upgraded to a bundle, or to an image.
func TestSaysWhatItsNodeCanBeUpgradedTo(t *testing.T) {
	for name, tc := range map[string]struct {
		with      func(r *rig)
		can, cant protocol.Capability
	}{
		"with bundles": {func(r *rig) { withStager(r) }, protocol.CapabilityNodeUpgrade, protocol.CapabilityNodeImage},
		"with images": {func(r *rig) {
			r.with = func(o *agent.Options) { o.Runners[protocol.OperationUpgrade] = &upgrader{} }
		}, protocol.CapabilityNodeImage, protocol.CapabilityNodeUpgrade},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tc.with(r)
			with := r.with
			r.with = func(o *agent.Options) {
				with(o)
				o.Runners[protocol.OperationNodeUpgrade] = &upgrader{}
			}
			r.start()
			r.manager.await(t, "the host enrols", func(m *manager) bool { return m.enrolments == 1 })
			r.manager.mu.Lock()
			defer r.manager.mu.Unlock()
			can := r.manager.enrolled[0].Hello.Capabilities
			if !slices.Contains(can, tc.can) || slices.Contains(can, tc.cant) {
				t.Errorf("the host can %v", can)
			}
		})
	}
}

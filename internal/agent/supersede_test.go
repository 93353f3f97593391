package agent_test

import (
	"context"
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

package agent_test

import (
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A manager that was restored from an older backup has the host bound, although it was reset since. It
// learns that.
func TestReportsTheResetOfABoundHost(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	reset := *bootstrapOf("a")
	reset.Type = protocol.OperationReset
	done := func(m *manager) bool {
		return slices.ContainsFunc(m.reports, func(report protocol.Report) bool {
			return slices.ContainsFunc(report.Operations, func(op protocol.OperationReport) bool {
				return op.Type == protocol.OperationReset && op.ID == "a" && op.State == protocol.StateSucceeded
			})
		})
	}
	r.manager.want(&reset, protocol.Desired{})
	r.manager.await(t, "the reset succeeded", done)
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "the host is free", taken)
	r.manager.set(func(m *manager) { m.reports = nil })
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	r.manager.await(t, "the host reports the reset again", done)
	if r.scripts["operations/bootstrap-a"] != 1 {
		t.Errorf("ran %v", r.scripts)
	}
}

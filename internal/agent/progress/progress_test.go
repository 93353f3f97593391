package progress_test

import (
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/progress"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The reporter encodes a report while the operation may end.
func TestReportOfAStepOutlivesTheOperation(t *testing.T) {
	var p progress.Progress
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p.Begin(state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: "a"}, StartedAt: started})
	p.SetStep("kubeadm init")
	p.Tick()
	report, isDue := p.Take()
	p.End()
	if !isDue || report.StartedAt == nil || !report.StartedAt.Equal(started) {
		t.Errorf("the report is %+v, due: %t; want the start %s", report, isDue, started)
	}
}

package agent

import (
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// progress is the step of the running operation. It is safe for concurrent use.
type progress struct {
	mu   sync.Mutex
	op   state.Operation
	step string
	// isDue is true if the step must be reported.
	isDue bool
	// reported is the step that was reported last.
	reported string
}

func (p *progress) begin(op state.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op, p.step, p.reported, p.isDue = op, "", "", false
}

func (p *progress) end() { p.begin(state.Operation{}) }

func (p *progress) setStep(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = step
}

// tick makes the current step due unless it was reported.
func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isDue = p.op.ID != "" && p.step != p.reported
}

// repeat makes the current step due again if it was taken.
func (p *progress) repeat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reported != "" {
		p.reported, p.isDue = "", true
	}
}

// take returns the report that is due and marks it as reported.
func (p *progress) take() (protocol.OperationReport, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isDue {
		return protocol.OperationReport{}, false
	}
	p.isDue, p.reported = false, p.step
	// The report is read after the next operation has begun.
	startedAt := p.op.StartedAt
	return protocol.OperationReport{
		Type: p.op.Type, ID: p.op.ID, State: protocol.StateRunning, Step: p.step, StartedAt: &startedAt,
	}, true
}

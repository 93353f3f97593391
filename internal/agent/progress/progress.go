// Package progress tells which step of the running operation has to be reported.
package progress

import (
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Progress is the step of the running operation. It is safe for concurrent use.
type Progress struct {
	mu   sync.Mutex
	op   state.Operation
	step string
	// isDue is true if the step must be reported.
	isDue bool
	// reported is the step that was reported last.
	reported string
}

// Begin begins the progress of an operation.
func (p *Progress) Begin(op state.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op, p.step, p.reported, p.isDue = op, "", "", false
}

// End ends it.
func (p *Progress) End() { p.Begin(state.Operation{}) }

// SetStep sets the step that runs.
func (p *Progress) SetStep(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = step
}

// Tick makes the current step due unless it was reported.
func (p *Progress) Tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isDue = p.op.ID != "" && p.step != p.reported
}

// Repeat makes the current step due again if it was taken.
func (p *Progress) Repeat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reported != "" {
		p.reported, p.isDue = "", true
	}
}

// Take returns the report that is due and marks it as reported.
func (p *Progress) Take() (protocol.OperationReport, bool) {
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

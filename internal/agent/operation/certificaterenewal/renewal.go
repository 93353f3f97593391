package certificaterenewal

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/sequence"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a renewal, in order, and the step of the way back.
const (
	stepCheck      = "check"
	stepCheckpoint = "checkpoint"
	stepRenew      = "renew"
	stepRestart    = "restart"
	stepGate       = "gate"
	stepFinish     = "finish"
	stepBack       = "rollback"
)

// untouched are the steps that change nothing that is in use.
func untouched() []string { return []string{stepCheck, stepCheckpoint} }

const (
	pollInterval = 2 * time.Second
	// readyTimeout is how long the control plane may take to be well, and readyHold for how long
	// it has to be.
	readyTimeout = 5 * time.Minute
	readyHold    = 20 * time.Second
)

// record is the progress of a renewal, on disk.
type record struct {
	sequence.Position

	// Ends is when the first of the former certificates ends.
	Ends time.Time `json:"ends,omitzero"`
	// WasReady is true if the control plane was well before.
	WasReady bool `json:"wasReady,omitempty"`
	// Found is what the way back has led to.
	Found string `json:"found,omitempty"`
}

// renewal is a renewal while it runs.
type renewal struct {
	*Runner

	op state.Operation
	at record
}

// Position is where the renewal is.
func (s *renewal) Position() *sequence.Position { return &s.at.Position }

// Step returns what a step does, and what follows.
func (s *renewal) Step(name string) sequence.Step {
	switch name {
	case stepCheck:
		return sequence.Step{Run: s.check, Next: stepCheckpoint}
	case stepCheckpoint:
		return sequence.Step{Run: s.keep, Next: stepRenew}
	case stepRenew:
		return sequence.Step{Run: s.renew, Next: stepRestart}
	case stepRestart:
		return sequence.Step{Run: s.restart, Next: stepGate}
	case stepGate:
		return sequence.Step{Run: s.gate, Next: stepFinish}
	case stepFinish:
		return sequence.Step{Run: s.finish, End: s.result}
	case stepBack:
		return sequence.Step{Run: s.goBack, End: s.judge}
	}
	return sequence.Step{}
}

// Fail decides what follows the failure of a step.
func (s *renewal) Fail(_ context.Context, cause error) (*operation.Result, error) {
	s.at.Tries++
	step, isLast := s.at.Step, s.at.Tries >= sequence.MaxAttempts
	switch {
	case step == stepFinish:
		return nil, sequence.Again(s, cause)
	case step == stepCheck:
		return failed(step, protocol.RenewalChangedNothing, sequence.Short(cause)), nil
	case step == stepCheckpoint && isLast:
		return failed(step, protocol.RenewalChangedNothing, sequence.Short(cause)), s.checkpoints().Remove(s.name())
	case step == stepBack && isLast:
		return s.broken("the way back failed: " + sequence.Short(cause)), nil
	case step != stepGate && !isLast:
		return nil, sequence.Again(s, cause)
	}
	s.Log.Error("A renewal of certificates failed; going back", "id", s.op.ID, "step", step, "error", cause)
	s.at.GoBack(stepBack, cause)
	return nil, s.Save()
}

// await waits until the control plane is well.
func (s *renewal) await(ctx context.Context, isWell func(context.Context) error) error {
	wait := sequence.Wait{Clock: s.Clock, Limit: readyTimeout, Hold: readyHold, Interval: pollInterval}
	return wait.Await(ctx, isWell)
}

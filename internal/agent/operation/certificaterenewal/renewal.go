package certificaterenewal

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
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
	// maxAttempts bounds how often a step that failed is repeated.
	maxAttempts  = 3
	pollInterval = 2 * time.Second
	// readyTimeout is how long the control plane may take to be well, and readyHold for how long
	// it has to be.
	readyTimeout = 5 * time.Minute
	readyHold    = 20 * time.Second
	// maxCause bounds an error in a message, in bytes.
	maxCause = 600
)

// record is the progress of a renewal, on disk.
type record struct {
	// Step is the one that may have been begun.
	Step string `json:"step"`
	// Tries counts failures of the step.
	Tries int `json:"tries,omitempty"`
	// Ends is when the first of the former certificates ends.
	Ends time.Time `json:"ends,omitzero"`
	// WasReady is true if the control plane was well before.
	WasReady bool `json:"wasReady,omitempty"`
	// FailedStep and Cause say why the way back was begun.
	FailedStep string `json:"failedStep,omitempty"`
	Cause      string `json:"cause,omitempty"`
	// Found is what the way back has led to.
	Found string `json:"found,omitempty"`
}

// renewal is a renewal while it runs.
type renewal struct {
	*Runner

	op       state.Operation
	at       record
	progress func(string)
}

// next runs the recorded step. A nil result means that another step follows.
func (s *renewal) next(ctx context.Context) (*operation.Result, error) {
	s.progress(s.at.Step)
	step := s.at.Step
	run, following := s.steps(step)
	if run == nil {
		return nil, fmt.Errorf("the renewal is at step %q, which this agent doesn't know: update the agent", step)
	}
	err := run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("renewing certificates: %w", context.Cause(ctx))
	case state.IsWriteError(err):
		return nil, err
	case err != nil:
		return s.fail(step, err)
	case step == stepBack:
		return s.judge(ctx)
	case step == stepFinish:
		return s.result(), nil
	}
	s.at.Step, s.at.Tries = following, 0
	return nil, s.save()
}

// steps returns what a step does, and the step that follows.
func (s *renewal) steps(step string) (run func(context.Context) error, following string) {
	switch step {
	case stepCheck:
		return s.check, stepCheckpoint
	case stepCheckpoint:
		return s.keep, stepRenew
	case stepRenew:
		return s.renew, stepRestart
	case stepRestart:
		return s.restart, stepGate
	case stepGate:
		return s.gate, stepFinish
	case stepFinish:
		return s.finish, ""
	case stepBack:
		return s.goBack, ""
	}
	return nil, ""
}

// fail decides what follows the failure of a step. An error means that the step is repeated.
func (s *renewal) fail(step string, cause error) (*operation.Result, error) {
	s.at.Tries++
	isLast := s.at.Tries >= maxAttempts
	switch {
	case step == stepFinish:
		return nil, s.again(step, cause)
	case step == stepCheck:
		return failed(step, protocol.RenewalChangedNothing, short(cause)), nil
	case step == stepCheckpoint && isLast:
		return failed(step, protocol.RenewalChangedNothing, short(cause)), s.checkpoints().Remove(s.name())
	case step == stepCheckpoint:
		return nil, s.again(step, fmt.Errorf("%w: %w", operation.ErrNothingDone, cause))
	case step == stepBack && isLast:
		return s.broken("the way back failed: " + short(cause)), nil
	case step != stepGate && !isLast:
		return nil, s.again(step, cause)
	}
	s.Log.Error("A renewal of certificates failed; going back", "id", s.op.ID, "step", step, "error", cause)
	s.at.Step, s.at.Tries, s.at.FailedStep, s.at.Cause = stepBack, 0, step, short(cause)
	return nil, s.save()
}

// again has the step repeated.
func (s *renewal) again(step string, cause error) error {
	if err := s.save(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", step, cause)
}

// await asks until the control plane is well for readyHold without a break, or returns the last
// error after readyTimeout.
func (s *renewal) await(ctx context.Context, isWell func(context.Context) error) error {
	deadline := s.Clock.Now().Add(readyTimeout)
	var since time.Time
	for {
		began := s.Clock.Now()
		err := isWell(ctx)
		now := s.Clock.Now()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !now.Before(deadline):
			return fmt.Errorf("the control plane was not well within %s: %w", readyTimeout, err)
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = began
		case now.Sub(since) >= readyHold:
			return nil
		}
		if err := s.Clock.Wait(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// short returns an error in one line of limited length.
func short(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}

package sequence

import (
	"context"
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// MaxAttempts is how often a step that fails is run, unless its operation says otherwise.
const MaxAttempts = 3

// Position is where an operation is. It is part of the operation's record on disk.
type Position struct {
	// Step is the one that may have been begun.
	Step string `json:"step"`
	// Tries counts failures of the step.
	Tries int `json:"tries,omitempty"`
	// FailedStep and Cause say why the way back was begun.
	FailedStep string `json:"failedStep,omitempty"`
	Cause      string `json:"cause,omitempty"`
}

// Begin sets the step that runs next.
func (p *Position) Begin(step string) { p.Step, p.Tries = step, 0 }

// GoBack has the step back run next, because the present one failed.
func (p *Position) GoBack(back string, cause error) {
	p.FailedStep, p.Cause = p.Step, Short(cause)
	p.Begin(back)
}

// Step is one step of an operation.
type Step struct {
	Run func(ctx context.Context) error
	// Next is the step that follows.
	Next string
	// End returns the result of the operation, for a step that may be the last one. It may set
	// another step instead and return no result.
	End func(ctx context.Context) (*operation.Result, error)
}

// Operation is an operation while it runs.
type Operation interface {
	// Position returns the operation's position, which Run changes.
	Position() *Position
	// Save writes the record, with the position, to the disk.
	Save() error
	// CheckWanted returns an error if the operation must not go on with the next step. If the manager
	// has withdrawn it, that error wraps operation.ErrNothingDone, after all that was done is undone.
	CheckWanted() error
	// Step returns a step. It has no Run if this agent does not know the step.
	Step(name string) Step
	// Fail decides what follows the failure of the present step: a result, another step that it
	// has saved, or an error. After an error the agent runs the step again later. The error must not
	// wrap operation.ErrNothingDone: a step that failed has done something, and the agent would drop a
	// withdrawn operation without another call of CheckWanted.
	Fail(ctx context.Context, cause error) (*operation.Result, error)
}

// Run runs an operation from its present step to its result. progress is called with each step.
// The operation goes on later if Run returns an error.
func Run(ctx context.Context, op Operation, progress func(step string)) (operation.Result, error) {
	for {
		if err := op.CheckWanted(); err != nil {
			return operation.Result{}, err
		}
		result, err := next(ctx, op, progress)
		if err != nil {
			return operation.Result{}, err
		}
		if result != nil {
			return *result, nil
		}
	}
}

// next runs the present step. A nil result means that another step follows.
func next(ctx context.Context, op Operation, progress func(string)) (*operation.Result, error) {
	at := op.Position()
	progress(at.Step)
	step := op.Step(at.Step)
	if step.Run == nil {
		return nil, fmt.Errorf("the operation is at step %q, which this agent doesn't know: update the agent", at.Step)
	}
	err := step.Run(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("stopping at step %s: %w", at.Step, context.Cause(ctx))
	case state.IsWriteError(err) || errors.Is(err, operation.ErrSuperseded):
		return nil, err
	case err != nil:
		return op.Fail(ctx, err)
	case step.End != nil:
		return step.End(ctx)
	}
	at.Begin(step.Next)
	return nil, op.Save()
}

// Succeed returns the End of a last step: the operation has succeeded, with a message.
func Succeed(message func() string) func(context.Context) (*operation.Result, error) {
	return func(context.Context) (*operation.Result, error) {
		return &operation.Result{State: protocol.StateSucceeded, Message: message()}, nil
	}
}

// Again saves the failures of the present step and returns an error that names it, so that the
// step runs again.
func Again(op Operation, cause error) error {
	if err := op.Save(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", op.Position().Step, cause)
}

// IsWanted reports whether the plan of the manager wants an operation.
func IsWanted(plan state.Plan, op state.Operation) bool {
	wanted := plan.Operation
	return wanted != nil && wanted.Type == op.Type && wanted.ID == op.ID
}

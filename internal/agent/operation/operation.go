package operation

import (
	"context"
	"errors"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ErrNothingDone marks an error of Runner.Run that left the host untouched. If the
// manager no longer wants the operation, the agent drops it.
var ErrNothingDone = errors.New("nothing was done")

// ErrSuperseded is the error of Runner.Run that has ended early, between two steps, because
// the host is to be reset.
var ErrSuperseded = errors.New("the manager wants this host reset")

// Runner runs operations of one type, one at a time.
type Runner interface {
	// Run begins the operation, or resumes it after a restart of the agent. It
	// returns an error, and no result, if the operation must be resumed: ctx ended,
	// or the failure has no bearing on the outcome. progress is called with each
	// step.
	Run(ctx context.Context, op state.Operation, progress func(step string)) (Result, error)
	// Abort ends whatever continues without Run. It is called after Run returned
	// because the operation was superseded.
	Abort(op state.Operation) error
	// Cleanup removes what is not needed once the result is recorded, such as
	// secrets. It may be repeated.
	Cleanup(op state.Operation) error
}

// Result is the outcome of an operation.
type Result struct {
	State protocol.OperationState
	// Step is the step that failed.
	Step    string
	Message string
	// Erased lists the result for each disk, if the operation erased disks.
	Erased []protocol.ErasedDisk
}

// Failed returns the result of an operation that failed at step.
func Failed(step string, err error) Result {
	return Result{State: protocol.StateFailed, Step: step, Message: err.Error()}
}

// FailedUnlessStopped returns Failed, or err if ctx ended: the operation did not
// fail then but is resumed by the next start of the agent.
func FailedUnlessStopped(ctx context.Context, step string, err error) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, err
	}
	return Failed(step, err), nil
}

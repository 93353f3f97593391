package halt

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/standstill"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps.
const (
	stepCheck = "check"
	stepHalt  = "halt"
	stepStart = "start"
)

// maxAttempts is how often a halt that fails is tried before the control plane is started again.
const maxAttempts = 3

// Runner is the operation.Runner of ControlPlaneHalts and ControlPlaneStarts. All fields are
// required.
//
// The checkpoint with the manifests is the record of progress: what has one was permitted.
type Runner struct {
	standstill.Standstill

	// Ready returns an error unless etcd and the API server of this host are well.
	Ready func(ctx context.Context) error
}

// Run halts or starts the control plane.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	if op.Type == protocol.OperationControlPlaneStart {
		return r.start(ctx, op, progress)
	}
	if op.ControlPlaneHalt == nil {
		return operation.Failed(stepCheck, errors.New("the request does not say what may be halted")), nil
	}
	name := checkpointOf(op)
	if _, err := r.Checkpoints.Open(name); errors.Is(err, fs.ErrNotExist) {
		progress(stepCheck)
		isWell := r.Ready(ctx) == nil
		if ctx.Err() != nil {
			return operation.Result{}, context.Cause(ctx)
		}
		if isWell && !op.ControlPlaneHalt.ReplaceHealthy {
			return operation.Failed(stepCheck, errors.New("etcd is well on this host: set spec.replaceHealthy of the ElementalEtcdRestore if its data is to be replaced all the same")), nil
		}
	}
	progress(stepHalt)
	err := r.halt(ctx, name)
	switch {
	case err == nil:
		return operation.Result{State: protocol.StateSucceeded, Message: "the control plane of this host is halted"}, nil
	case ctx.Err() != nil || op.Attempt < maxAttempts:
		return operation.Result{}, err
	}
	if err := r.end(ctx, name); err != nil {
		return operation.Result{}, err
	}
	return operation.Failed(stepHalt, err), nil
}

func (r *Runner) halt(ctx context.Context, name string) error {
	if _, err := r.Checkpoints.Take(ctx, name, nil, nil); err != nil {
		return err
	}
	return r.Begin(ctx, name)
}

// start starts what the halt with the same ID has ended, if it began.
func (r *Runner) start(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	progress(stepStart)
	if err := r.end(ctx, checkpointOf(op)); err != nil {
		return operation.Result{}, err
	}
	return operation.Result{State: protocol.StateSucceeded, Message: "the control plane of this host is started"}, nil
}

// end ends the standstill, if it has begun.
func (r *Runner) end(ctx context.Context, name string) error {
	err := r.End(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.Checkpoints.Remove(name)
}

// Abort does nothing: no program outlives Run.
func (*Runner) Abort(state.Operation) error { return nil }

// Cleanup does nothing: the checkpoint of a halt stays until the start or the reset.
func (*Runner) Cleanup(state.Operation) error { return nil }

// checkpointOf is the name of the checkpoint of a halt, for the operation or the start after it.
func checkpointOf(op state.Operation) string {
	op.Type = protocol.OperationControlPlaneHalt
	return filepath.Base(op.Folder())
}

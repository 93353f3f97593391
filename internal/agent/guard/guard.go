// Package guard refuses a reset for a Machine on a host that runs the Node of another one.
//
// A manager that was restored from an older backup can claim a host for a Machine that it knows,
// although the host runs the Node of a Machine that it does not know. The bootstrap fails there,
// because the host is not clean. The end of the claim must not destroy the Node either.
package guard

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// step is the step of a reset that was refused.
const step = "owner"

// Runner is the operation.Runner of resets, unless they are refused.
type Runner struct {
	operation.Runner

	Store *state.Store
}

// Run runs the reset. A refused reset fails, and is tried again while the plan wants it.
func (r Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	refusal, err := Refusal(r.Store, op)
	if err != nil {
		return operation.Result{}, err
	}
	if refusal == nil {
		return r.Runner.Run(ctx, op, progress)
	}
	if wanted := r.Store.Plan().Operation; wanted == nil || wanted.Type != op.Type || wanted.ID != op.ID {
		return operation.Result{}, fmt.Errorf("%w: %w", operation.ErrNothingDone, refusal)
	}
	return operation.Failed(step, refusal), nil
}

// Refusal returns why a reset is refused; nil if it is not. A reset that a person began on the host
// is for no Machine, and is never refused.
func Refusal(store *state.Store, reset state.Operation) (refusal, err error) {
	if reset.MachineName == "" {
		return nil, nil
	}
	node, err := lastBootstrap(store)
	if err != nil || node.MachineName == "" || node.MachineName == reset.MachineName && node.ClusterName == reset.ClusterName {
		return nil, err
	}
	return fmt.Errorf("nothing was touched: the host runs the Node of Machine %s of Cluster %s, and never one of Machine %s of Cluster %s; "+
		"if that Node is to go, run systemctl stop elemental-agent, then elemental-agent reset --yes on the host", node.MachineName, node.ClusterName, reset.MachineName, reset.ClusterName), nil
}

// lastBootstrap returns the last bootstrap that found the host clean, or took over its Node, and was
// not reset; the zero value without one.
func lastBootstrap(store *state.Store) (state.Operation, error) {
	var last state.Operation
	for _, op := range store.Operations() {
		switch {
		case op.Type == protocol.OperationReset && op.State == protocol.StateSucceeded:
			last = state.Operation{}
		case op.Type == protocol.OperationBootstrap && op.State == protocol.StateSucceeded:
			last = op
		case op.Type == protocol.OperationBootstrap:
			found, err := operation.PreexistingDocument(store.Documents(), op.Folder()).Load()
			if err != nil {
				return state.Operation{}, err
			}
			if found != nil {
				last = op
			}
		}
	}
	return last, nil
}

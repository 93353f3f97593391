package bootstrap

import (
	"context"
	"errors"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Adopter checks the Node that runs on this host; see adoption.Checker.
type Adopter interface {
	// Check returns an error that wraps operation.ErrNothingDone if it can't check now, and
	// another error if the Node is not the wanted one. It changes nothing.
	Check(ctx context.Context, want protocol.Adoption) error
}

// adopt takes over the Node that runs on the host. It changes nothing but the Node's providerID.
func (r *Runner) adopt(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	if r.Adopter == nil {
		return operation.Result{
			State: protocol.StateUnsupported, Step: stepAdopt, Message: "this agent can't take over a Node that runs already",
		}, nil
	}
	progress(stepAdopt)
	err := r.Adopter.Check(ctx, *op.Adoption)
	if errors.Is(err, operation.ErrNothingDone) {
		return operation.Result{}, err
	}
	if err != nil {
		return operation.FailedUnlessStopped(ctx, stepAdopt, err)
	}
	progress(stepNode)
	isSet, err := r.ProviderID.SetProviderID(ctx, op.Adoption.ProviderID)
	switch {
	case err != nil:
		return operation.FailedUnlessStopped(ctx, stepNode, err)
	case !isSet:
		return operation.Failed(stepNode, errors.New("the host has no kubelet any more, so there is no Node to take over")), nil
	default:
		return operation.Result{State: protocol.StateSucceeded}, nil
	}
}

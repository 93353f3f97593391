package erase

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Runner erases after the reset that it wraps: when all of the node is gone, and
// before anybody is told. A reset whose erasure failed has failed, and is tried
// again.
type Runner struct {
	// Runner resets.
	agent.Runner
	Documents state.Files
	Eraser    *Eraser
	Log       *slog.Logger
}

// Run resets, and erases if the operation says so. Both go on where a power cut
// ended them.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (agent.Result, error) {
	result, err := r.Runner.Run(ctx, op, progress)
	if err != nil || result.State != protocol.StateSucceeded || op.Erase == "" {
		return result, err
	}
	if op.Erase != protocol.EraseZero && op.Erase != protocol.EraseDiscard {
		return agent.Result{State: protocol.StateFailed, Step: stepName, Message: fmt.Sprintf("this agent can't erase by %q", op.Erase)}, nil
	}
	document := state.Document[Done]{Files: r.Documents, Name: op.Folder() + "/erased.json"}
	before, err := document.Load()
	if err != nil {
		return agent.Result{}, err
	}
	done := maps.Clone(before)
	if done == nil {
		done = Done{}
	}
	record := func(key string) error {
		done[key] = true
		return document.Save(done)
	}
	progress(stepName)
	erased, err := r.Eraser.Erase(ctx, op.Erase, before, record, progress)
	if err != nil {
		return r.interruptible(ctx, err)
	}
	var failures []string
	for _, disk := range erased {
		r.Log.Info("Erasure", "disk", disk.Name, "serial", disk.Serial, "result", disk.Result, "message", disk.Message)
		if disk.Result == protocol.ErasureFails {
			failures = append(failures, fmt.Sprintf("disk %s (serial number %q): %s", disk.Name, disk.Serial, disk.Message))
		}
	}
	result.Erased = shortened(erased)
	if len(failures) > 0 {
		result.State, result.Step = protocol.StateFailed, stepName
		result.Message = "could not erase " + strings.Join(failures, "; ")
	}
	return result, nil
}

// interruptible is a failure, unless the agent is being stopped or can't write.
func (r *Runner) interruptible(ctx context.Context, err error) (agent.Result, error) {
	if ctx.Err() != nil || isStateError(err) {
		return agent.Result{}, err
	}
	return agent.Result{State: protocol.StateFailed, Step: stepName, Message: err.Error()}, nil
}

// isStateError reports whether the agent could not remember something.
func isStateError(err error) bool {
	_, ok := errors.AsType[*state.WriteError](err)
	return ok
}

// shortened keeps a report within its limit: those that failed come first, those
// that were kept last.
func shortened(all []protocol.ErasedDisk) []protocol.ErasedDisk {
	if len(all) <= protocol.MaxDevices {
		return all
	}
	var out []protocol.ErasedDisk
	for _, result := range []protocol.ErasureResult{protocol.ErasureFails, protocol.Erased, protocol.ErasureKept} {
		for _, disk := range all {
			if disk.Result == result {
				out = append(out, disk)
			}
		}
	}
	return out[:protocol.MaxDevices]
}

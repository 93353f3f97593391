package erase

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Runner is an operation.Runner that erases data disks after the reset that it wraps, and
// before the result is recorded. If the erasure fails, the reset has failed and is
// retried.
type Runner struct {
	// Runner is the reset.
	operation.Runner
	Documents state.Files
	Eraser    *Eraser
	Log       *slog.Logger
}

// Run resets the host, and erases the disks if the operation asks for it. Both resume
// after a power cut.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	result, err := r.Runner.Run(ctx, op, progress)
	if err != nil || result.State != protocol.StateSucceeded || op.Erase == "" {
		return result, err
	}
	if op.Erase != protocol.EraseZero && op.Erase != protocol.EraseDiscard {
		return operation.Result{State: protocol.StateFailed, Step: stepName, Message: fmt.Sprintf("this agent can't erase by %q", op.Erase)}, nil
	}
	document := state.Document[Done]{Files: r.Documents, Name: op.Folder() + "/erased.json"}
	before, err := document.Load()
	if err != nil {
		return operation.Result{}, err
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
	if state.IsWriteError(err) {
		return operation.Result{}, err
	}
	if err != nil {
		return operation.FailedUnlessStopped(ctx, stepName, err)
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

// shortened limits the disks in a report. Failed disks come first, kept disks last.
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

package bootstrap

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// desired is the part of a plan that Prepare needs, such as the static Pod of a
// control plane's VIP, or the API servers behind a local endpoint. It is recorded with the bootstrap data, so that a later plan
// changes nothing about a bootstrap that was begun.
type desired struct {
	Endpoint *protocol.Endpoint `json:"endpoint,omitempty"`
	Files    []protocol.File    `json:"files,omitzero"`
}

func desiredDocument(files state.Files, folder string) state.Document[desired] {
	return state.Document[desired]{Files: files, Name: folder + "/beside.json"}
}

// recordDesired records it from the plan that ordered the operation.
func (r *Runner) recordDesired(op state.Operation) error {
	if r.Preparer == nil {
		return nil
	}
	plan := r.Desired()
	if len(plan.Files) == 0 && (plan.Endpoint == nil || !plan.Endpoint.VIP && plan.Endpoint.Local == nil) {
		return nil
	}
	return desiredDocument(r.Documents, op.Folder()).Save(desired{plan.Endpoint, plan.Files})
}

// writeFiles has the Preparer write what was recorded.
func (r *Runner) writeFiles(ctx context.Context, op state.Operation, progress func(string)) (*operation.Result, error) {
	want, err := desiredDocument(r.Documents, op.Folder()).Load()
	if err != nil || r.Preparer == nil || want.Endpoint == nil && want.Files == nil {
		return nil, err
	}
	progress(stepFiles)
	err = r.Preparer.Prepare(ctx, want.Endpoint, want.Files)
	if err == nil || ctx.Err() != nil || state.IsWriteError(err) {
		return nil, err
	}
	result := operation.Failed(stepFiles, err)
	return &result, nil
}

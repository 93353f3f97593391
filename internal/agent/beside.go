package agent

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// besides is what a plan desires beside the bootstrap data, such as the static
// Pod that has a control plane's VIP. It is kept like the data: a plan that
// vanishes meanwhile changes nothing about a bootstrap.
type besides struct {
	Endpoint *protocol.Endpoint `json:"endpoint,omitempty"`
	Files    []protocol.File    `json:"files,omitzero"`
}

func beside(files state.Files, folder string) state.Document[besides] {
	return state.Document[besides]{Files: files, Name: folder + "/beside.json"}
}

// rememberBeside keeps what the plan that brought the operation desires.
func (b *Bootstrap) rememberBeside(op state.Operation) error {
	if b.Keeper == nil {
		return nil
	}
	desired := b.Desired()
	if len(desired.Files) == 0 && (desired.Endpoint == nil || !desired.Endpoint.VIP) {
		return nil
	}
	return beside(b.Documents, op.Folder()).Save(besides{desired.Endpoint, desired.Files})
}

// putBeside puts it in place.
func (b *Bootstrap) putBeside(ctx context.Context, op state.Operation, progress func(string)) (*Result, error) {
	want, err := beside(b.Documents, op.Folder()).Load()
	if err != nil || b.Keeper == nil || want.Endpoint == nil && want.Files == nil {
		return nil, err
	}
	progress(stepFiles)
	err = b.Keeper.Prepare(ctx, want.Endpoint, want.Files)
	if err == nil || ctx.Err() != nil || isStateError(err) {
		return nil, err
	}
	result := failed(stepFiles, err)
	return &result, nil
}

package apply

import (
	"context"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/files"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
)

// WriteFiles writes the files of c, also those that an operation has written before, and adds
// to the Manifest of the journal what Undo must revert. It records no other progress, and may
// be repeated. No file of c may be one to append to.
func WriteFiles(ctx context.Context, c *bootstrapdata.Config, opts Options) error {
	e, err := newExecution(opts)
	if err != nil {
		return err
	}
	for _, write := range slices.Concat(files.Steps(c, false), files.Steps(c, true)) {
		in := &journal.Intent{Step: write.Title()}
		if err := write.Prepare(ctx, e, in); err != nil {
			return err
		}
		if err := e.Save(); err != nil {
			return err
		}
		if err := write.Execute(ctx, e, in); err != nil {
			return err
		}
	}
	return nil
}

package operation

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// Bootstraps are the bootstraps that were executed on this host. A reset undoes them.
type Bootstraps interface {
	// Executed lists the folders of all bootstraps that were begun, latest first.
	Executed() ([]string, error)
	// Undo reverts what a bootstrap did. It may be repeated.
	Undo(ctx context.Context, folder string) error
}

// Preexisting are the paths that a host had before a bootstrap. A reset keeps them.
type Preexisting struct {
	Paths []string `json:"present"`
}

// PreexistingDocument is where a bootstrap records them for the reset. It loads nil
// before the bootstrap has looked.
func PreexistingDocument(files state.Files, folder string) state.Document[*Preexisting] {
	return state.Document[*Preexisting]{Files: files, Name: folder + "/before.json"}
}

package installation

import (
	"context"
	"fmt"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

type phase string

// Phases of an installation.
const (
	phaseInstalling phase = "Installing"
	phaseInstalled  phase = "Installed"
	phaseRemoving   phase = "Removing"
)

// content is what is recorded of an installation.
type content struct {
	Phase phase `json:"phase,omitempty"`
	// SHA256 and Version are those of the bundle.
	SHA256  string `json:"sha256,omitempty"`
	Version string `json:"version,omitempty"`
	// Files did not exist before, or were set aside.
	Files []file `json:"files,omitempty"`
	// Folders did not exist before; outer ones first.
	Folders []string `json:"folders,omitempty"`
	// Units are names of units among Files.
	Units []string `json:"units,omitempty"`
	// Hidden are units of the host whose place or programs the installation takes.
	Hidden []hiddenUnit `json:"hidden,omitempty"`
	// KeptKubernetes is true if the host keeps its own kubelet and kubeadm.
	KeptKubernetes bool `json:"keptKubernetes,omitempty"`
	// Containerd is true if the data of containerd belongs to the installation: it brought
	// containerd, and there was no data before.
	Containerd bool `json:"containerd,omitempty"`
}

// file is a file of an installation.
type file struct {
	Path string `json:"path"`
	// SHA256 has the digests that the file may have.
	SHA256 []string `json:"sha256"`
	// Aside is true if a file of the host is, or is about to be, kept aside.
	Aside bool `json:"aside,omitempty"`
}

// Record is what the host knows of an installation.
type Record struct{ Files state.Files }

func (r Record) document() state.Document[content] {
	return state.Document[content]{Files: r.Files, Name: "installation.json"}
}

// Leftovers names what there is of an installation, for the survey of cleanliness.
func (r Record) Leftovers(context.Context) ([]string, error) {
	at, err := r.document().Load()
	if err != nil || at.Phase == "" {
		return nil, err
	}
	return []string{fmt.Sprintf("bundle of Kubernetes %s (%d files)", at.Version, len(at.Files))}, nil
}

// Has reports whether an installation put a file there. An unreadable record has none.
func (r Record) Has(path string) bool {
	at, err := r.document().Load()
	return err == nil && at.index(path) >= 0
}

// Accept records that files of an installation are about to be replaced by those of
// another bundle. Remove then removes either. Files that are not the installation's are
// ignored. An upgrade of Kubernetes in place calls it before it replaces a program.
func (r Record) Accept(files []bundle.File) error {
	at, err := r.document().Load()
	if err != nil {
		return err
	}
	changed := false
	for _, f := range files {
		i := at.index(f.Path)
		if i < 0 || slices.Contains(at.Files[i].SHA256, f.SHA256) {
			continue
		}
		// The former ones are checkpoints of an upgrade that may be rolled back.
		at.Files[i].SHA256 = append(at.Files[i].SHA256, f.SHA256)
		changed = true
	}
	if !changed {
		return nil
	}
	return r.document().Save(at)
}

func (c content) index(path string) int {
	return slices.IndexFunc(c.Files, func(f file) bool { return f.Path == path })
}

// allUnits are the units that the installation brought, and those that it hides.
func (c content) allUnits() []string {
	units := slices.Clone(c.Units)
	for _, unit := range c.Hidden {
		if !slices.Contains(units, unit.Name) {
			units = append(units, unit.Name)
		}
	}
	return units
}

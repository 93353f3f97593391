package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
)

// finalScripts returns the steps for runcmd and the document's scripts in the order
// of their names, as in cloud-init's directory of scripts.
func finalScripts(c *bootstrapdata.Config) []step.Step {
	var scripts []step.Script
	for _, s := range c.Scripts {
		scripts = append(scripts, step.Script{Label: "script " + s.Name, Body: s.Body, Direct: true})
	}
	if len(c.Commands) > 0 {
		at, _ := slices.BinarySearchFunc(c.Scripts, "runcmd", func(s bootstrapdata.ScriptFile, name string) int { return cmp.Compare(s.Name, name) })
		scripts = slices.Insert(scripts, at, step.Script{Label: "runcmd", Body: bootstrapdata.Script(c.Commands)})
	}
	var steps []step.Step
	for i, s := range scripts {
		s.Sentinel, s.More = c.Sentinel, i < len(scripts)-1
		steps = append(steps, s)
	}
	return steps
}

// sentinelStep removes the success file of an earlier bootstrap, so that the file
// proves the success of this bootstrap.
type sentinelStep struct{ path string }

func (s sentinelStep) Title() string { return "clear " + s.path }

func (s sentinelStep) Prepare(_ context.Context, e *step.Execution, _ *journal.Intent) error {
	target, err := e.Resolve(s.path)
	if err != nil {
		return err
	}
	e.RecordMissingDirs(filepath.Dir(target))
	e.Manifest().Files = journal.AddOnce(e.Manifest().Files, target)
	return nil
}

func (s sentinelStep) Execute(_ context.Context, e *step.Execution, _ *journal.Intent) error {
	target, err := e.Resolve(s.path)
	if err != nil {
		return err
	}
	if err := os.Remove(e.RealPath(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an earlier bootstrap's %s: %w", s.path, err)
	}
	return nil
}

package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
)

// Output returns what the scripts of the job have printed, in the order in which they began.
func (e *LocalExecutor) Output(folder string) ([]operation.Output, error) {
	dirs, err := filepath.Glob(filepath.Join(e.applied(folder), "scripts", "*"))
	if err != nil {
		return nil, fmt.Errorf("looking for scripts: %w", err)
	}
	type begun struct {
		dir string
		at  int64
	}
	var found []begun
	var failures []error
	for _, dir := range dirs {
		info, err := os.Stat(filepath.Join(dir, "started"))
		switch {
		case err == nil:
			found = append(found, begun{dir, info.ModTime().UnixNano()})
		case !errors.Is(err, fs.ErrNotExist):
			failures = append(failures, err)
		}
	}
	slices.SortFunc(found, func(a, b begun) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.dir, b.dir)) })
	outputs := make([]operation.Output, 0, len(found))
	for _, one := range found {
		text, err := script.Output(one.dir)
		failures = append(failures, err)
		outputs = append(outputs, operation.Output{Name: filepath.Base(one.dir), Text: text})
	}
	return outputs, errors.Join(failures...)
}

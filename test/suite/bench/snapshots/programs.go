package snapshots

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// buildPrograms builds the command snapshotter and etcdctl.
func (m *measurement) buildPrograms(ctx context.Context) error {
	m.snapshotter = filepath.Join(m.folder, "snapshotter")
	if _, err := (shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", m.snapshotter, "./test/suite/bench/cmd/snapshotter"},
		Dir:  m.Checkout, Env: []string{"CGO_ENABLED=0"},
	}).Run(ctx); err != nil {
		return fmt.Errorf("building the command snapshotter: %w", err)
	}
	tools, err := toolset.Select("etcdctl")
	if err != nil {
		return fmt.Errorf("selecting programs: %w", err)
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		return fmt.Errorf("finding the cache of programs: %w", err)
	}
	programs, err := toolset.Builder{Modules: filepath.Join(m.Checkout, "test", "tools"), Cache: cache, Progress: m.Progress}.Folder(ctx, tools...)
	if err != nil {
		return fmt.Errorf("building programs: %w", err)
	}
	m.etcdctl = filepath.Join(programs, "etcdctl")
	return nil
}

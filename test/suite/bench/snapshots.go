package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/snapshots"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// quietShare is the share of Options.Rest (1/quietShare) for which writes are measured without snapshots in each round.
const quietShare = 20

// measureSnapshots measures writes to the API server while snapshots of etcd are taken.
func measureSnapshots(ctx context.Context, g *rig) (err error) {
	folder, err := os.MkdirTemp("", "elemental-snapshotter-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	o := snapshots.Options{
		Cluster: g.cluster, Admin: g.admin, Namespace: bareNamespace, Count: g.options.Snapshots, Size: g.options.Database,
		Quiet: g.options.Rest / quietShare, Progress: g.progress, Snapshotter: filepath.Join(folder, "snapshotter"),
	}
	if _, err := (shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", o.Snapshotter, "./test/suite/bench/cmd/snapshotter"},
		Dir:  g.options.Checkout, Env: []string{"CGO_ENABLED=0"},
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
	programs, err := toolset.Builder{Modules: filepath.Join(g.options.Checkout, "test", "tools"), Cache: cache, Progress: g.progress}.Folder(ctx, tools...)
	if err != nil {
		return fmt.Errorf("building programs: %w", err)
	}
	o.Etcdctl = filepath.Join(programs, "etcdctl")
	report, err := snapshots.Measure(ctx, o)
	if err != nil {
		return err
	}
	g.add(report)
	return nil
}

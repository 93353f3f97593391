package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// measureClusters measures complete clusters with Cluster API's own controllers.
func measureClusters(ctx context.Context, r *run) error {
	folder, err := os.MkdirTemp("", "elemental-bench-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	program, module := filepath.Join(folder, "clusters"), filepath.Join(r.options.Checkout, "test", "harness", "simulator")
	if _, err := (shell.Command{
		Args: []string{"go", "build", "-trimpath", "-o", program, "./cmd/clusters"}, Dir: module, Env: []string{"CGO_ENABLED=0"},
	}).Run(ctx); err != nil {
		return fmt.Errorf("building the program that makes clusters: %w", err)
	}
	var out bytes.Buffer
	command := exec.CommandContext(ctx, program, fmt.Sprintf("--count=%d", r.options.Clusters))
	command.Dir, command.Stdout, command.Stderr = module, &out, r.options.Progress
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	if err := command.Run(); err != nil {
		// It prints figures even if some clusters failed.
		if out.Len() == 0 || ctx.Err() != nil {
			return fmt.Errorf("making clusters: %w", errors.Join(err, context.Cause(ctx)))
		}
		r.progress.Say("Not all clusters came about: %v", err)
	}
	f := &figures.Clusters{}
	if err := json.Unmarshal(out.Bytes(), f); err != nil {
		return fmt.Errorf("reading figures of clusters: %w", err)
	}
	if f.Clusters == 0 || len(f.Processes) == 0 {
		return errors.New("reading figures of clusters: there are none")
	}
	r.add(f.Report())
	return nil
}

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
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
	r.showClusters(f)
	return nil
}

func (r *run) showClusters(f *figures.Clusters) {
	missing := f.Clusters - f.Provisioned
	r.row(table.Row{
		Figure: fmt.Sprintf("%s clusters of %d control plane and %d worker: all run after", table.Count(f.Clusters), f.ControlPlanes, f.Workers),
		Value:  seconds(f.Seconds),
	})
	r.row(table.Row{Figure: "Clusters that do not run", Value: table.Count(missing), Target: "0", Missed: missing > 0})
	r.row(table.Row{Figure: "One cluster, median", Value: seconds(f.MedianSeconds)})
	r.row(table.Row{Figure: "One cluster, longest", Value: seconds(f.LongestSeconds)})
	r.row(table.Row{Figure: "Share of this provider in the CPU time of all managers", Value: table.Percent(f.Share)})
	var processes []string
	for _, name := range slices.Sorted(maps.Keys(f.Processes)) {
		p := f.Processes[name]
		processes = append(processes, fmt.Sprintf("%s %s (%s)", name, seconds(p.CPUSeconds), table.MiB(float64(p.MemoryBytes))))
	}
	atOnce := "all at once"
	if f.Parallel > 0 {
		atOnce = fmt.Sprintf("%d at a time", f.Parallel)
	}
	r.note("Real Cluster API controllers make clusters of the default template, with blank endpoints, on %s virtual hosts, %s. Their workload clusters are in memory, and bootstraps take next to no time. "+
		"CPU time (and memory in the end) of each process: %s. simulation is all hosts and workload clusters.", table.Count(f.Hosts), atOnce, strings.Join(processes, ", "))
}

func seconds(s float64) string { return table.Duration(time.Duration(s * float64(time.Second))) }

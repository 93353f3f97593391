// Package figures has the figures that one program measures and another one shows.
package figures

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

// Clusters has the figures of many workload clusters. The command clusters of module test/harness/simulator prints them as
// JSON; test/suite/bench, which can't import that module, shows them.
type Clusters struct {
	Clusters      int `json:"clusters"`
	ControlPlanes int `json:"controlPlanes"`
	Workers       int `json:"workers"`
	Hosts         int `json:"hosts"`
	// Provisioned is the number of clusters whose Machines all ran in time.
	Provisioned int `json:"provisioned"`
	// Parallel is how many clusters could be in creation at a time; 0 means all.
	Parallel int `json:"parallel"`
	// Seconds is the time from the first request until all Machines of all clusters ran, with a precision of two seconds.
	Seconds float64 `json:"seconds"`
	// MedianSeconds and LongestSeconds are the times of single clusters, from their creation.
	MedianSeconds  float64 `json:"medianSeconds"`
	LongestSeconds float64 `json:"longestSeconds"`
	// Processes has the resources of each process meanwhile. "simulation" runs hosts, agents and workload clusters.
	Processes map[string]Process `json:"processes"`
	// Share is this provider's share, 0 to 1, of the CPU time of all managers.
	Share float64 `json:"share"`
}

// Process has the resources that a process used.
type Process struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	// MemoryBytes is its memory at the end.
	MemoryBytes uint64 `json:"memoryBytes"`
}

// manager is the name of this provider's process.
const manager = "manager"

// CAPI returns the names of Cluster API's processes.
func CAPI() []string {
	return []string{"capi-core", "capi-kubeadm-bootstrap", "capi-kubeadm-control-plane"}
}

// Fill computes the figures from the time at which each cluster was created, the time at which all its Machines ran, both
// since the beginning, and the processes before and after.
func (f *Clusters) Fill(made, whole map[string]time.Duration, before, after map[string]Process) {
	var times []time.Duration
	for name, at := range whole {
		times = append(times, at-made[name])
	}
	f.Provisioned = len(times)
	f.MedianSeconds = measure.Quantile(times, 0.5).Seconds()
	f.LongestSeconds = measure.Quantile(times, 1).Seconds()
	f.Seconds = measure.Quantile(slices.Collect(maps.Values(whole)), 1).Seconds()
	f.Processes = map[string]Process{}
	for name, process := range after {
		process.CPUSeconds -= before[name].CPUSeconds
		f.Processes[name] = process
	}
	all := f.Processes[manager].CPUSeconds
	for _, name := range CAPI() {
		all += f.Processes[name].CPUSeconds
	}
	if all > 0 {
		f.Share = f.Processes[manager].CPUSeconds / all
	}
}

// Report returns the figures as they are shown.
func (f *Clusters) Report() Report {
	missing := f.Clusters - f.Provisioned
	var processes []string
	for _, name := range slices.Sorted(maps.Keys(f.Processes)) {
		p := f.Processes[name]
		processes = append(processes, fmt.Sprintf("%s %s (%s)", name, seconds(p.CPUSeconds), table.MiB(float64(p.MemoryBytes))))
	}
	atOnce := "all at once"
	if f.Parallel > 0 {
		atOnce = fmt.Sprintf("%d at a time", f.Parallel)
	}
	return Report{
		Rows: []table.Row{
			{
				Figure: fmt.Sprintf("%s clusters of %d control plane and %d worker: all run after", table.Count(f.Clusters), f.ControlPlanes, f.Workers),
				Value:  seconds(f.Seconds),
			},
			{Figure: "Clusters that do not run", Value: table.Count(missing), Target: "0", Missed: missing > 0},
			{Figure: "One cluster, median", Value: seconds(f.MedianSeconds)},
			{Figure: "One cluster, longest", Value: seconds(f.LongestSeconds)},
			{Figure: "Share of this provider in the CPU time of all managers", Value: table.Percent(f.Share)},
		},
		Notes: []string{fmt.Sprintf("Real Cluster API controllers make clusters of the default template, with blank endpoints, on %s virtual hosts, %s. "+
			"Their workload clusters are in memory, and bootstraps take next to no time. CPU time (and memory in the end) of each process: %s. "+
			"simulation is all hosts and workload clusters.", table.Count(f.Hosts), atOnce, strings.Join(processes, ", "))},
	}
}

func seconds(s float64) string { return table.Duration(time.Duration(s * float64(time.Second))) }

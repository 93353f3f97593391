// Package figures has the figures that one program measures and another one shows.
package figures

import (
	"maps"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
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

// Package figures has what one program measures and another one shows.
package figures

import (
	"maps"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/measure"
)

// Clusters are the figures of many workload clusters that were made at once. They are printed as JSON by the command
// clusters of module test/simulator, and shown by test/bench, which can't import that.
type Clusters struct {
	Clusters      int `json:"clusters"`
	ControlPlanes int `json:"controlPlanes"`
	Workers       int `json:"workers"`
	Hosts         int `json:"hosts"`
	// Provisioned are the clusters all of whose Machines ran in time.
	Provisioned int `json:"provisioned"`
	// Parallel is how many could be in the making at once; 0: all.
	Parallel int `json:"parallel"`
	// Seconds is how long it took from the first request until all Machines of all clusters ran; to two seconds.
	Seconds float64 `json:"seconds"`
	// MedianSeconds and LongestSeconds are how long one cluster took from its making on.
	MedianSeconds  float64 `json:"medianSeconds"`
	LongestSeconds float64 `json:"longestSeconds"`
	// Processes are what each took meanwhile. "simulation" is that of the hosts, their agents and their clusters.
	Processes map[string]Process `json:"processes"`
	// Share is how much of the processor time of all managers is this provider's, 0 to 1.
	Share float64 `json:"share"`
}

// Process is what a process took.
type Process struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	// MemoryBytes is what it had at the end.
	MemoryBytes uint64 `json:"memoryBytes"`
}

// manager is this provider's process.
const manager = "manager"

// CAPI are the names of Cluster API's processes.
func CAPI() []string {
	return []string{"capi-core", "capi-kubeadm-bootstrap", "capi-kubeadm-control-plane"}
}

// Fill computes what follows from what was seen: when each cluster was made and when all its Machines ran, as times since
// the beginning, and the processes before and after.
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

package clusters

import (
	"maps"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/measure"
)

// Figures are what was measured.
type Figures struct {
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

// manager is this provider's process; capi are Cluster API's.
const manager = "manager"

func capi() []string {
	return []string{"capi-core", "capi-kubeadm-bootstrap", "capi-kubeadm-control-plane"}
}

// fill computes what follows from what was seen.
func (f *Figures) fill(made, whole map[string]time.Duration, before, after map[string]Process) {
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
	for _, name := range capi() {
		all += f.Processes[name].CPUSeconds
	}
	if all > 0 {
		f.Share = f.Processes[manager].CPUSeconds / all
	}
}

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
	// CreateSeconds is how long the requests for all clusters took, Seconds how long from the first of them until all
	// Machines of all clusters ran; to two seconds.
	CreateSeconds float64 `json:"createSeconds"`
	Seconds       float64 `json:"seconds"`
	// FirstSeconds and MedianSeconds are how long it took until the first cluster was whole, and half of them.
	FirstSeconds  float64 `json:"firstSeconds"`
	MedianSeconds float64 `json:"medianSeconds"`
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
func (f *Figures) fill(whole map[string]time.Duration, before, after map[string]Process) {
	times := slices.Collect(maps.Values(whole))
	f.Provisioned = len(times)
	f.FirstSeconds = measure.Quantile(times, 0).Seconds()
	f.MedianSeconds = measure.Quantile(times, 0.5).Seconds()
	f.Seconds = measure.Quantile(times, 1).Seconds()
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

// settings are those of Cluster API's managers. By default each takes 100 requests per second, which bounds many
// clusters before two processors do.
func settings() map[string][]string {
	args := map[string][]string{}
	for _, name := range capi() {
		args[name] = []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
	}
	return args
}

package template

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// operatingSystem is the value of Node.status.nodeInfo.operatingSystem on all hosts.
const operatingSystem = "linux"

// minimum counts hosts and keeps the smallest amount of each resource.
type minimum struct {
	count  int32
	cores  int64
	memory int64
}

// add adds a host. A resource that the host has not reported is ignored, not zero.
func (m *minimum) add(inventory *infrav1.HostInventory) {
	m.count++
	if inventory == nil {
		return
	}
	m.cores = lesser(m.cores, int64(inventory.CPU.Cores))
	m.memory = lesser(m.memory, inventory.MemoryBytes)
}

func lesser(known, reported int64) int64 {
	if reported <= 0 || (known > 0 && known < reported) {
		return known
	}
	return reported
}

func (m *minimum) capacity() corev1.ResourceList {
	list := corev1.ResourceList{}
	if m.cores > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(m.cores, resource.DecimalSI)
	}
	if m.memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(m.memory, resource.BinarySI)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// statusFor returns the status of a template with these constraints. Capacity is the
// amount of each resource that a machine has on any free host (docs/adr/0030). Hosts that
// are not admitted do not count: anybody who can enrol one could change the capacity.
func statusFor(constraints placement.Constraints, hosts []*infrav1.ElementalHost) infrav1.ElementalMachineTemplateStatus {
	var matching, free minimum
	architectures := map[string]struct{}{}
	for _, host := range hosts {
		if _, ok := constraints.Matches(host); !ok {
			continue
		}
		matching.add(host.Status.Inventory)
		if hoststatus.Available(host).IsTrue() {
			free.add(host.Status.Inventory)
		}
		if host.Status.Inventory != nil && host.Status.Inventory.Architecture != "" {
			architectures[host.Status.Inventory.Architecture] = struct{}{}
		}
	}
	status := infrav1.ElementalMachineTemplateStatus{
		Capacity: free.capacity(),
		Hosts:    infrav1.TemplateHosts{Matching: &matching.count, Available: &free.count},
	}
	if free.count == 0 {
		status.Capacity = matching.capacity()
	}
	if matching.count > 0 {
		status.NodeInfo.OperatingSystem = operatingSystem
	}
	if len(architectures) == 1 {
		for architecture := range architectures {
			status.NodeInfo.Architecture = architecture
		}
	}
	return status
}

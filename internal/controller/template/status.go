package template

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// operatingSystem is what hosts run, in Node.status.nodeInfo's terms.
const operatingSystem = "linux"

// kind is what some hosts have in common.
type kind struct {
	count  int32
	cores  int64
	memory int64
}

// add takes the lesser of each resource. What a host does not say is no zero.
func (k *kind) add(inventory *infrav1.HostInventory) {
	k.count++
	if inventory == nil {
		return
	}
	k.cores = lesser(k.cores, int64(inventory.CPU.Cores))
	k.memory = lesser(k.memory, inventory.MemoryBytes)
}

func lesser(known, said int64) int64 {
	if said <= 0 || (known > 0 && known < said) {
		return known
	}
	return said
}

func (k *kind) capacity() corev1.ResourceList {
	list := corev1.ResourceList{}
	if k.cores > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(k.cores, resource.DecimalSI)
	}
	if k.memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(k.memory, resource.BinarySI)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// statusFor says what a machine that asks for this would be: of each resource at
// least so much, whichever free host it gets (docs/adr/0030).
func statusFor(request placement.Request, hosts []infrav1.ElementalHost) infrav1.ElementalMachineTemplateStatus {
	var matching, free kind
	architectures := map[string]struct{}{}
	for i := range hosts {
		host := &hosts[i]
		if _, ok := request.Matches(host); !ok || !host.DeletionTimestamp.IsZero() {
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

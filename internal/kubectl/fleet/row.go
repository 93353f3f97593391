package fleet

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// none stands for a value that a host does not have.
const none = "-"

// deleted is the state of a host that does not exist any more.
const deleted = "(deleted)"

// columns returns the columns of the table.
func columns() []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	for _, name := range []string{
		"Name", "State", "Cluster", "Machine", "Zone", "Cores", "Memory", "Address", "Kubernetes", "Agent", "Contact",
	} {
		all = append(all, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	return all
}

// row returns the host's row. Contact is how long ago the agent was last heard of.
func row(host *infrav1.ElementalHost, state string, now time.Time) metav1.TableRow {
	cells := []any{host.Name, state}
	for _, value := range append(claimOf(host), hardwareOf(host)...) {
		cells = append(cells, cmp.Or(value, none))
	}
	return metav1.TableRow{
		Cells:  append(cells, contact(host, now)),
		Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}}},
	}
}

func claimOf(host *infrav1.ElementalHost) []string {
	if host.Spec.Claim == nil {
		return []string{"", ""}
	}
	return []string{host.Spec.Claim.ClusterName, host.Spec.Claim.MachineName}
}

// hardwareOf returns the columns from Zone to Agent.
func hardwareOf(host *infrav1.ElementalHost) []string {
	cores, memory, kubernetes, agent := "", "", "", ""
	if i := host.Status.Inventory; i != nil {
		if i.CPU.Cores > 0 {
			cores = strconv.Itoa(int(i.CPU.Cores))
		}
		memory = gibibytes(i.MemoryBytes)
		if i.Kubernetes != nil {
			kubernetes = i.Kubernetes.Kubelet.Version
		}
	}
	if host.Status.Agent != nil {
		agent = host.Status.Agent.Version
	}
	return []string{host.Labels[infrav1.DefaultFailureDomainLabel], cores, memory, addressOf(host), kubernetes, agent}
}

func gibibytes(bytes int64) string {
	const gib = 1 << 30
	switch {
	case bytes <= 0:
		return ""
	case bytes < 10*gib:
		return fmt.Sprintf("%.1fGi", float64(bytes)/gib)
	default:
		return fmt.Sprintf("%.0fGi", float64(bytes)/gib)
	}
}

func addressOf(host *infrav1.ElementalHost) string {
	for _, address := range host.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			return address.Address
		}
	}
	return ""
}

func contact(host *infrav1.ElementalHost, now time.Time) string {
	switch {
	case host.Status.Connection == nil:
		return "never"
	case host.IsConnected():
		return "now"
	default:
		return duration.HumanDuration(now.Sub(host.Status.Connection.Since.Time)) + " ago"
	}
}

// stateOf returns the reason of the condition Ready. A host whose status was not restored
// gets the one that the manager will write.
func stateOf(host *infrav1.ElementalHost, now time.Time) string {
	ready := meta.FindStatusCondition(host.Status.Conditions, infrav1.ReadyCondition)
	if ready == nil {
		host = host.DeepCopy()
		hoststatus.Update(host, metav1.NewTime(now))
		ready = meta.FindStatusCondition(host.Status.Conditions, infrav1.ReadyCondition)
	}
	return ready.Reason
}

package inplace

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ModeOf returns the mode of the cluster. A nil cluster, of another provider, has the mode
// Off.
func ModeOf(cluster *infrav1.ElementalCluster) infrav1.InPlaceMode {
	if cluster == nil {
		return infrav1.InPlaceOff
	}
	return cmp.Or(cluster.Spec.InPlace.Mode, infrav1.InPlaceOff)
}

// IsMarked reports whether Cluster API has marked the object for an update in place.
func IsMarked(annotations map[string]string) bool {
	_, marked := annotations[clusterv1.UpdateInProgressAnnotation]
	return marked
}

// IsAsked reports whether Cluster API asks for the update of the Machine: it has written what
// the Machine is to be, and calls the hook UpdateMachine.
func IsAsked(machine *clusterv1.Machine) bool {
	hook := runtimecatalog.HookName(runtimehooksv1.UpdateMachine)
	for pending := range strings.SplitSeq(machine.Annotations[runtimev1.PendingHooksAnnotation], ",") {
		if pending == hook {
			return IsMarked(machine.Annotations)
		}
	}
	return false
}

// NewRequestID returns the ID of a new request for a claimed host. It begins with the ID of
// the claim, so that a request of a former claim is never taken for one of this claim.
func NewRequestID(claim *infrav1.HostClaim) string {
	return claim.ID + "." + string(uuid.NewUUID())[:8]
}

// Request returns the host's request for an upgrade, or nil. Requests of former claims don't
// count.
func Request(host *infrav1.ElementalHost) *infrav1.HostNodeUpgrade {
	up, claim := host.Spec.NodeUpgrade, host.Spec.Claim
	if up == nil || claim == nil || !strings.HasPrefix(up.ID, claim.ID+".") {
		return nil
	}
	return up
}

// Operation returns what the host reports on its request; nil if it has none or has not begun.
func Operation(host *infrav1.ElementalHost) *infrav1.HostOperation {
	if up := Request(host); up != nil {
		return host.Operation(infrav1.OperationNodeUpgrade, up.ID)
	}
	return nil
}

// Wanted returns the first target that the Machine's host does not have; zero if it has all. infra
// is the Machine's ElementalMachine.
//
// If the host was asked for that target, it must have finished: its kubelet has the version, and
// it runs the image, before the host has checked the Node.
func Wanted(machine *clusterv1.Machine, infra *infrav1.ElementalMachine, host *infrav1.ElementalHost) Target {
	for _, target := range []Target{{Version: machine.Spec.Version}, {OSImage: infra.Spec.OSImage}} {
		if target != (Target{}) && !hasReached(target, machine, host) {
			return target
		}
	}
	return Target{}
}

func hasReached(target Target, machine *clusterv1.Machine, host *infrav1.ElementalHost) bool {
	if up := Request(host); up != nil && TargetOf(up) == target {
		op := Operation(host)
		return op != nil && op.State == infrav1.OperationSucceeded
	}
	if target.OSImage != "" {
		return protocol.SameOSImage(OSImage(host), string(target.OSImage))
	}
	return KubeletVersion(machine) == target.Version
}

// IsUpToDate reports whether the Machine's host has all that the Machine is to have.
func IsUpToDate(machine *clusterv1.Machine, infra *infrav1.ElementalMachine, host *infrav1.ElementalHost) bool {
	return Wanted(machine, infra, host) == Target{}
}

// OSImage returns the image of the operating system that the host reports; blank if it is not
// known.
func OSImage(host *infrav1.ElementalHost) string {
	if host.Status.Inventory == nil {
		return ""
	}
	return host.Status.Inventory.OS.Image
}

// KubeletVersion returns the version that the kubelet of the Machine's Node reports; blank if
// it is not known.
func KubeletVersion(machine *clusterv1.Machine) string {
	if machine.Status.NodeInfo == nil {
		return ""
	}
	return machine.Status.NodeInfo.KubeletVersion
}

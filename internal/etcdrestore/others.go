package etcdrestore

import (
	"cmp"
	"fmt"
	"slices"

	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Others returns the control-plane hosts other than the one that etcd is restored on, sorted by
// name. Their control planes are halted before the restore, because a majority of them would go on
// with the former data, and their Machines are replaced after it. A host that is not bootstrapped
// has no member of etcd.
func (f Facts) Others() []*infrav1.ElementalHost {
	name := HostName(f.Restore)
	if host := f.Host(); host != nil {
		name = host.Name
	}
	var others []*infrav1.ElementalHost
	for _, host := range f.Hosts {
		if host.Name != name && isMember(host) {
			others = append(others, host)
		}
	}
	slices.SortFunc(others, func(a, b *infrav1.ElementalHost) int { return cmp.Compare(a.Name, b.Name) })
	return others
}

// isMember reports whether the host may have a member of the cluster's etcd. Cluster API removes
// the member before it has a host held or released.
func isMember(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim.Phase == infrav1.ClaimBound && host.Spec.Claim.Role.IsControlPlane() && host.IsBootstrapped()
}

// IsOff reports whether a person has said that the host is off, by a fence.
func IsOff(host *infrav1.ElementalHost) bool { return host.Spec.Fence != nil && !host.IsConnected() }

// refuseOthers looks at the hosts whose control planes have to stand still.
func refuseOthers(f Facts) string {
	for _, host := range f.Others() {
		if obstacle := obstacleToHalt(host); obstacle != "" {
			return fmt.Sprintf("The control plane on host %s can't be halted: %s", host.Name, obstacle)
		}
	}
	return refuseJoining(f)
}

// refuseJoining looks for hosts that are about to have members of etcd.
func refuseJoining(f Facts) string {
	for _, host := range f.Hosts {
		if isControlPlane(host) && host.Spec.Claim.Phase == infrav1.ClaimBound && !host.IsBootstrapped() && hasRunning(host) {
			return fmt.Sprintf("Host %s joins the control plane: wait until its bootstrap has ended", host.Name)
		}
	}
	return ""
}

// obstacleToHalt returns why the host can't halt its control plane now; blank if it can, or is off.
func obstacleToHalt(host *infrav1.ElementalHost) string {
	switch {
	case IsOff(host):
		return ""
	case host.Spec.Fence != nil:
		return "it is fenced, but connected: unfence it, or turn it off"
	case !host.IsConnected():
		return "it is not connected, and its member would go on with the former data. Bring it online. If it is off and stays off, fence it (kubectl elemental fence)"
	case !hoststatus.Admitted(host).IsTrue():
		return "it is not approved, or locked"
	case !host.Supports(infrav1.OperationType(protocol.CapabilityControlPlaneHalt)):
		return "its agent is too old, or its operating system is an image: update the agent"
	case annotations.HasPaused(host):
		return "it is paused"
	case hasRunning(host):
		return "an operation runs on it"
	default:
		return ""
	}
}

// hasRunning reports whether an operation runs on the host.
func hasRunning(host *infrav1.ElementalHost) bool {
	return slices.ContainsFunc(host.Status.Operations, func(op infrav1.HostOperation) bool { return op.State == infrav1.OperationRunning })
}

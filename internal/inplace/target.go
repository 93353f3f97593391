package inplace

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Target is what one upgrade brings a host to: a version of Kubernetes, or an image of the
// operating system. The other one is blank.
type Target struct {
	Version string
	OSImage infrav1.OSImage
}

// String completes the phrase "is to upgrade to ...".
func (t Target) String() string {
	if t.OSImage != "" {
		return "the image " + string(t.OSImage)
	}
	return "Kubernetes " + t.Version
}

// TargetOf returns the target of a host's request.
func TargetOf(up *infrav1.HostNodeUpgrade) Target {
	return Target{Version: up.Bundle.Version, OSImage: up.OSImage}
}

// Obstacle says why the host can't reach the target, whatever the releases of Kubernetes have;
// blank if it can.
func (t Target) Obstacle(host *infrav1.ElementalHost) string {
	runsImages := host.Supports(infrav1.OperationUpgrade)
	switch {
	case t.OSImage != "" && host.Supports(infrav1.OperationType(protocol.CapabilityNodeImage)):
		return ""
	case t.OSImage != "" && runsImages:
		return "the agent of host " + host.Name + " can't boot another image below a Node; update the agent"
	case t.OSImage != "":
		return "host " + host.Name + " does not run Elemental OS"
	case host.Supports(infrav1.OperationType(protocol.CapabilityNodeUpgrade)):
		return ""
	case runsImages:
		return "host " + host.Name + " runs Elemental OS, which has the programs of Kubernetes in its image; another version needs another Machine"
	default:
		return "the agent of host " + host.Name + " can't upgrade Kubernetes; update the agent"
	}
}

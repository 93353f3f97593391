package placement

import (
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// IsReturning reports whether the host is being released and will be available soon
// without anybody's help: its agent is connected, the reset has not failed, and nothing
// keeps machines off the host afterwards.
func IsReturning(host *infrav1.ElementalHost) bool {
	spec := host.Spec
	if spec.Claim == nil || spec.Claim.Phase != infrav1.ClaimReleasing || !host.IsConnected() ||
		spec.Cordon != nil || spec.Quarantine != nil || annotations.HasPaused(host) {
		return false
	}
	switch hoststatus.Available(host).Reason() {
	case infrav1.ResettingReason, infrav1.WaitingForMachineGone:
		return true
	default:
		return false
	}
}

package snapshot

import (
	"cmp"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// isControlPlane reports whether the host belongs to the control plane of its cluster.
func isControlPlane(host *infrav1.ElementalHost) bool {
	return host != nil && host.IsBoundOrHeld() && host.Spec.Claim.Role.IsControlPlane()
}

// obstacle returns why a control-plane host is not asked for a snapshot now; blank if it may
// be.
func obstacle(host *infrav1.ElementalHost) string {
	switch {
	case host.Spec.Claim.Phase != infrav1.ClaimBound:
		return "it is held"
	case !hoststatus.Admitted(host).IsTrue():
		return "it is not approved, or locked, fenced or being deleted"
	case !host.IsBootstrapped():
		return "it is not bootstrapped"
	case !host.IsConnected():
		return "it is not connected"
	case !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshot)):
		return "its agent can't take snapshots"
	case host.InMaintenance():
		return "it is in maintenance"
	case host.IsHalted():
		return "its control plane is halted"
	case isBusy(host):
		return "an operation is requested or runs on it"
	case !mayServe(host):
		return "its API server is not ready"
	default:
		return ""
	}
}

// isBusy reports whether an operation runs on the host or is about to begin.
func isBusy(host *infrav1.ElementalHost) bool {
	isOpen := func(t infrav1.OperationType, id string) bool {
		op := host.Operation(t, id)
		return op == nil || op.State == infrav1.OperationRunning
	}
	return slices.ContainsFunc(host.Status.Operations, func(op infrav1.HostOperation) bool { return op.State == infrav1.OperationRunning }) ||
		host.Spec.NodeUpgrade != nil && isOpen(infrav1.OperationNodeUpgrade, host.Spec.NodeUpgrade.ID) ||
		host.Spec.Reboot != nil && isOpen(infrav1.OperationReboot, host.Spec.Reboot.ID)
}

// mayServe is false if the host says that its own API server does not answer. Hosts say so
// only for some types of endpoints.
func mayServe(host *infrav1.ElementalHost) bool {
	e := host.Status.Endpoint
	return e == nil || e.APIServer == nil || e.APIServer.Result == infrav1.ProbeReachable
}

// next returns the host to ask after former, in the order of names, so that snapshots are
// spread over the hosts. The endpoint host comes last of a round, and is left out of the
// first attempts while there is another host. It returns nil without candidates.
func next(candidates []*infrav1.ElementalHost, former, endpointHost string, isFirst bool) *infrav1.ElementalHost {
	isEndpoint := func(h *infrav1.ElementalHost) bool { return h.Name == endpointHost }
	round := slices.Clone(candidates)
	if isFirst && len(round) > 1 {
		round = slices.DeleteFunc(round, isEndpoint)
	}
	if len(round) == 0 {
		return nil
	}
	rank := func(h *infrav1.ElementalHost) int {
		if isEndpoint(h) {
			return 1
		}
		return 0
	}
	slices.SortFunc(round, func(a, b *infrav1.ElementalHost) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	formerRank := 0
	if former == endpointHost {
		formerRank = 1
	}
	i := slices.IndexFunc(round, func(h *infrav1.ElementalHost) bool {
		return cmp.Or(cmp.Compare(rank(h), formerRank), cmp.Compare(h.Name, former)) > 0
	})
	return round[max(i, 0)]
}

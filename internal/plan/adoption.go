package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// isAdopting reports whether the host runs a Node that its machine has not taken over yet. It may be
// any Node, so the plan desires nothing of it: its name and providerID are for the operation.
func isAdopting(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim != nil && host.Spec.Claim.Adoption != nil
}

// adoption returns what the Node on the host must be, for its machine to take it over; nil for a
// host that is bootstrapped.
func adoption(claim *infrav1.HostClaim) *protocol.Adoption {
	is := claim.Adoption
	if is == nil {
		return nil
	}
	return &protocol.Adoption{
		ControlPlane: claim.Role.IsControlPlane(), AuthorityHash: is.AuthorityHash, Endpoint: is.Endpoint, Version: is.Version,
	}
}

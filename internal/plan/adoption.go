package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// adoption returns what the Node on a claimed host must be, for its machine to take it over; nil for
// a host that is bootstrapped. Until the Node is taken over it may be any Node: the plan desires
// nothing of it, and the operation has all that it needs.
func adoption(host *infrav1.ElementalHost) *protocol.Adoption {
	is := host.Spec.Claim.Adoption
	if is == nil {
		return nil
	}
	return &protocol.Adoption{
		NodeName: Hostname(host), ProviderID: ProviderID(host), ControlPlane: host.Spec.Claim.Role.IsControlPlane(),
		AuthorityHash: is.AuthorityHash, Endpoint: is.Endpoint, Version: is.Version,
	}
}

package plan

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// CanHaveTunnel reports whether the host's plan asks for a tunnel if its cluster needs the
// host's: the host is a Node of the cluster, nothing keeps the manager from trusting it,
// and its agent can open one.
func CanHaveTunnel(host *infrav1.ElementalHost) bool {
	return host.Spec.Approval == infrav1.ApprovalApproved && host.Spec.Lock == nil && host.Spec.Fence == nil &&
		host.DeletionTimestamp.IsZero() && host.IsBootstrapped() && host.Supports(infrav1.OperationType(protocol.CapabilityTunnel))
}

// WantsTunnel reports whether the host's plan asks for a tunnel: on a control-plane host,
// which has an API server, or on a worker while no control-plane host of the cluster has a
// tunnel, if the endpoint is of type Tunnel. Of the cluster it needs Infra and Fallback.
func WantsTunnel(host *infrav1.ElementalHost, cluster Cluster) bool {
	if cluster.Infra == nil || !cluster.Infra.HasTunnels() || !CanHaveTunnel(host) {
		return false
	}
	return host.Spec.Claim.Role.IsControlPlane() || cluster.Fallback
}

// Package tunnelhost decides what a host can do for a cluster whose endpoint is of type
// Tunnel: whether it may be a host of the cluster at all, and whether connections of the
// management cluster may go through it. Placement, the ElementalCluster controller and the
// gateway share it. It does no I/O.
package tunnelhost

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// AgentTooOld completes the phrase "3 hosts ..." of placement's messages.
const AgentTooOld = "whose agents are too old for an endpoint of type Tunnel"

// IsCapable reports whether the host's agent can open tunnels and serve the endpoint on the
// host. Workers need both, too: their tunnels carry the cluster while no control-plane host
// has one.
func IsCapable(host *infrav1.ElementalHost) bool {
	return host.Supports(infrav1.OperationType(protocol.CapabilityTunnel)) && host.Supports(infrav1.OperationType(protocol.CapabilityLocalEndpoint))
}

// Feasible is IsCapable for placement.Constraints.
func Feasible(host *infrav1.ElementalHost) (why string, ok bool) {
	if !IsCapable(host) {
		return AgentTooOld, false
	}
	return "", true
}

// MayCarry reports whether connections to the host's cluster may go through the host: a
// machine of the cluster uses it, and an administrator trusts it. Machines that are being
// deleted are the caller's concern.
func MayCarry(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim != nil && host.Spec.Claim.Phase == infrav1.ClaimBound && hoststatus.Admitted(host).IsTrue()
}

// IsReady reports whether the API server on the control-plane host was ready when the host
// probed it last.
func IsReady(host *infrav1.ElementalHost) bool {
	e := host.Status.Endpoint
	return e != nil && e.APIServer != nil && e.APIServer.Result == infrav1.ProbeReachable
}

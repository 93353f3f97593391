package tunnel

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// condition returns the condition TunnelReady of a cluster with these hosts and that type of
// endpoint. It is pure.
func condition(hosts map[string]*infrav1.ElementalHost, kind infrav1.EndpointType) metav1.Condition {
	var carry, standBy, fallback []string
	reasons := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		host := hosts[name]
		if !tunnelhost.MayCarry(host) || !host.IsBootstrapped() {
			continue
		}
		reason, why := obstacle(host, kind)
		switch {
		case !host.Spec.Claim.Role.IsControlPlane():
			if host.HasTunnel() {
				fallback = append(fallback, name)
			}
		case reason == "":
			carry = append(carry, name)
		default:
			reasons[reason] = true
			standBy = append(standBy, fmt.Sprintf("%s (%s)", name, why))
		}
	}
	c := metav1.Condition{Type: infrav1.TunnelReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.TunnelReadyReason}
	switch {
	case len(carry) > 0:
		c.Message = "Connections go through " + failover.JoinFirst(carry, ", ")
		if len(standBy) > 0 {
			c.Message += "; not through " + failover.JoinFirst(standBy, ", ")
		}
	case len(fallback) > 0 && !reasons[infrav1.APIServerRefusesReason]:
		c.Message = "Connections go through workers, because no control-plane host has a tunnel: " + failover.JoinFirst(fallback, ", ")
		if len(standBy) > 0 {
			c.Message += "; not through " + failover.JoinFirst(standBy, ", ")
		}
	case len(standBy) == 0:
		c.Status, c.Reason = metav1.ConditionFalse, infrav1.WaitingForControlPlaneReason
		c.Message = "The cluster has no control-plane host that is bootstrapped and may be used"
	default:
		c.Status, c.Reason = metav1.ConditionFalse, worst(reasons)
		c.Message = "No connections to the cluster are possible: " + failover.JoinFirst(standBy, ", ")
	}
	return c
}

// obstacle returns why no connection goes through a control-plane host; blank if some do.
func obstacle(host *infrav1.ElementalHost, kind infrav1.EndpointType) (reason, why string) {
	switch {
	case host.HasTunnel() && (tunnelhost.IsReady(host) || !isProbed(kind)):
		return "", ""
	case host.HasTunnel():
		return infrav1.APIServerRefusesReason, "its API server is not ready"
	case !tunnelhost.IsCapable(host):
		return infrav1.AgentTooOldReason, "its agent is too old for tunnels"
	case host.Status.Tunnel != nil && host.Status.Tunnel.Message != "":
		return infrav1.NoTunnelReason, fmt.Sprintf("no tunnel: %s", host.Status.Tunnel.Message)
	default:
		return infrav1.NoTunnelReason, "no tunnel"
	}
}

// isProbed reports whether control-plane hosts probe their own API server, with that type of
// endpoint.
func isProbed(kind infrav1.EndpointType) bool {
	return kind == infrav1.EndpointTypeTunnel || kind == infrav1.EndpointTypeHost
}

// worst returns the reason that a person should look at first: a host with a tunnel is
// closest to carrying connections.
func worst(reasons map[string]bool) string {
	for _, reason := range []string{infrav1.APIServerRefusesReason, infrav1.NoTunnelReason} {
		if reasons[reason] {
			return reason
		}
	}
	return infrav1.AgentTooOldReason
}

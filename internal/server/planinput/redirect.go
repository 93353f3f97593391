package planinput

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// withPeers adds the cluster's API servers on other hosts if the host is the endpoint host and
// is to be upgraded in place: clients of the endpoint are redirected to one of them meanwhile.
// Those that are likely to be ready come first. The host checks them itself, so a change of
// them wakes nobody.
func (r *Reader) withPeers(ctx context.Context, host *infrav1.ElementalHost, known plan.Cluster) (plan.Cluster, error) {
	if !plan.MayRedirect(host, known) {
		return known, nil
	}
	hosts, err := r.hostsOfCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)
	if err != nil {
		return known, err
	}
	doubtful := map[string]int{}
	known.Backends, err = r.servers(ctx, hosts, host.Name, func(peer *infrav1.ElementalHost) string {
		at := peerAddress(peer, known.Infra)
		if isDoubtful(peer) {
			doubtful[at] = 1
		}
		return at
	})
	slices.SortStableFunc(known.Backends, func(a, b string) int { return cmp.Compare(doubtful[a], doubtful[b]) })
	return known, err
}

// peerAddress returns where the endpoint's clients reach the API server of another host of
// the control plane, IP:port: at the address that the endpoint would have on it. It is blank
// for a host that is none, or that nobody trusts.
func peerAddress(host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) string {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimBound || !claim.Role.IsControlPlane() || !host.IsBootstrapped() || !hoststatus.Admitted(host).IsTrue() {
		return ""
	}
	at, _ := address.ForEndpoint(host, infra.Spec.ControlPlaneEndpointPolicy)
	if _, err := netip.ParseAddr(at); err != nil {
		return "" // it has none, or is a name
	}
	return infrav1.ControlPlaneEndpoint{Host: at, Port: infra.Spec.ControlPlaneEndpoint.Port}.HostPort()
}

// isDoubtful reports whether the API server of a host may not be ready: nobody says so, or the
// host is being upgraded.
func isDoubtful(host *infrav1.ElementalHost) bool {
	reported := host.Status.Endpoint
	if !host.IsConnected() || reported == nil || reported.APIServer == nil || reported.APIServer.Result != infrav1.ProbeReachable {
		return true
	}
	up := host.Spec.NodeUpgrade
	if up == nil {
		return false
	}
	is := host.Operation(infrav1.OperationNodeUpgrade, up.ID)
	return is != nil && is.State == infrav1.OperationRunning
}

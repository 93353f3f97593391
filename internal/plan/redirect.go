package plan

import (
	"net/netip"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// MayRedirect reports whether the host redirects connections to the control plane endpoint
// while it upgrades Kubernetes in place: it is the endpoint host. One that boots another image
// goes away as a whole. Of the cluster it needs Infra alone; with Backends there is where to.
func MayRedirect(host *infrav1.ElementalHost, cluster Cluster) bool {
	infra, up := cluster.Infra, host.Spec.NodeUpgrade
	return infra != nil && up != nil && up.OSImage == "" && up.Role != infrav1.UpgradeWorker && infra.EndpointType() == infrav1.EndpointTypeHost &&
		infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name == host.Name && unfinished(host.Operation(infrav1.OperationNodeUpgrade, up.ID))
}

// redirect returns where connections to the endpoint may go while the host's API server is
// replaced, or nil. An endpoint that is a name can't be redirected.
func redirect(host *infrav1.ElementalHost, cluster Cluster) *protocol.Redirect {
	if !MayRedirect(host, cluster) || len(cluster.Backends) == 0 {
		return nil
	}
	endpoint := cluster.Infra.Spec.ControlPlaneEndpoint.HostPort()
	if _, err := netip.ParseAddrPort(endpoint); err != nil {
		return nil
	}
	return &protocol.Redirect{Endpoint: endpoint, Servers: cluster.Backends}
}

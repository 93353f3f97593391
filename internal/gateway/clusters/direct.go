package clusters

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/direct"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// Direct implements direct.Clusters.
func (c *Connector) Direct(ctx context.Context, key types.NamespacedName) (direct.Cluster, error) {
	found, err := c.connection(ctx, key, (*infrav1.ElementalCluster).AdmitsUsers)
	if err != nil {
		return direct.Cluster{}, err
	}
	out := direct.Cluster{CA: found.ca, Admin: found.admin}
	_, infra, err := c.find(ctx, key)
	if err != nil || infra == nil || infra.Spec.Access == nil || infra.Spec.Access.Direct == nil {
		return out, err
	}
	out.TTL = infra.Spec.Access.Direct.TTL()
	out.Servers, err = c.servers(ctx, key, infra)
	return out, err
}

// servers returns the API servers of the cluster, by the names of their hosts.
func (c *Connector) servers(ctx context.Context, key types.NamespacedName, infra *infrav1.ElementalCluster) ([]direct.Server, error) {
	hosts := &infrav1.ElementalHostList{}
	err := c.o.Cache.List(ctx, hosts, client.InNamespace(key.Namespace), client.MatchingFields{index.HostByCluster: key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing hosts of Cluster %s: %w", key, err)
	}
	var out []direct.Server
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if !tunnelhost.MayCarry(host) || !host.IsBootstrapped() || !host.Spec.Claim.Role.IsControlPlane() {
			continue
		}
		if at := serverAddress(host, infra); at != "" {
			out = append(out, direct.Server{Host: host.Name, Address: at})
		}
	}
	slices.SortFunc(out, func(a, b direct.Server) int { return cmp.Compare(a.Host, b.Host) })
	return out, nil
}

// serverAddress returns where the API server of a control-plane host is reached, host:port;
// blank if the host has no address.
func serverAddress(host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) string {
	if e := host.Status.Endpoint; e != nil && e.APIServer != nil && e.APIServer.Address != "" {
		return e.APIServer.Address
	}
	at, _ := address.ForEndpoint(host, infra.Spec.ControlPlaneEndpointPolicy)
	if at == "" {
		return ""
	}
	port := int32(infrav1.DefaultControlPlanePort)
	// An endpoint that leads to the hosts themselves has their port.
	if kind := infra.EndpointType(); kind == infrav1.EndpointTypeHost || kind == infrav1.EndpointTypeVIP {
		port = infra.Spec.ControlPlaneEndpoint.WithDefaultPort().Port
	}
	return net.JoinHostPort(at, strconv.Itoa(int(port)))
}

package failuredomain

import (
	"context"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// Cache keeps the failure domains that were found for each cluster.
type Cache = scope.Cache[domains]

// Finder finds failure domains. Several goroutines may use it.
type Finder struct {
	Reader scope.Reader
	Cache  *Cache
}

// Find returns the failure domains of the cluster, sorted by name.
func (f Finder) Find(ctx context.Context, s *scope.Scope) ([]clusterv1.FailureDomain, error) {
	key := client.ObjectKeyFromObject(s.InfraCluster)
	f.Cache.Delete(key)
	label := placement.FailureDomainLabel(s.InfraCluster)
	hosts, err := f.Reader.Hosts(ctx, s.InfraCluster.Namespace, client.MatchingFields{index.HostByLabel: label})
	if err != nil {
		return nil, err
	}
	if len(hosts) == 0 && len(s.InfraCluster.Status.FailureDomains) == 0 {
		return nil, nil
	}
	// The reason for waiting is dropped: the endpoint's condition has it.
	controlPlane, waiting, err := f.Reader.ControlPlane(ctx, s)
	if err != nil {
		return nil, err
	}
	constraints := controlPlane.Constraints
	if s.InfraCluster.EndpointType() == infrav1.EndpointTypeTunnel {
		constraints.Feasible = tunnelhost.Feasible
	}
	if vip := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.VIP; vip != nil {
		constraints.Feasible = kubevip.Feasible(vip, s.InfraCluster.Spec.ControlPlaneEndpoint.Host)
	}
	r := rule{label: label, cluster: s.Cluster.Name, constraints: constraints, known: waiting == nil}
	r.reservedHost, r.onlyReserved = firstHost(s)
	machines, err := f.machines(ctx, s)
	if err != nil {
		return nil, err
	}
	r.inUse, r.creates = machines.domains, machines.createsNext(controlPlane)
	found := domains{rule: r, byName: r.apply(hosts)}
	if r.known {
		f.Cache.Set(key, found)
	}
	return found.published(), nil
}

// firstHost returns the host that the first control-plane machine has to claim, and
// whether there is such a restriction. With it, the host's failure domain is the only
// one for the control plane: the control-plane provider picks one of several domains at
// random, and a machine claims only hosts of its own domain.
func firstHost(s *scope.Scope) (name string, restricted bool) {
	if ptr.Deref(s.Cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return "", false
	}
	switch s.InfraCluster.EndpointType() {
	case infrav1.EndpointTypeHost:
		return s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name, true
	case infrav1.EndpointTypeVIP, infrav1.EndpointTypeExternal, infrav1.EndpointTypeTunnel:
		return "", false
	default:
		return "", !s.Cluster.Spec.ControlPlaneEndpoint.IsValid()
	}
}

package failuredomain

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// Found are the failure domains that were found for a cluster.
type Found struct{ domains domains }

// FindIn finds the failure domains of a cluster whose control plane has the constraints.
// reservedHost is the host that its first machine has to claim; blank for none. creates
// means that it creates a Machine next; it has Machines in the failure domains inUse.
func FindIn(c *infrav1.ElementalCluster, constraints placement.Constraints, reservedHost string, creates bool, inUse []string, hosts []*infrav1.ElementalHost) Found {
	r := rule{
		label: placement.FailureDomainLabel(c), cluster: c.Labels[clusterv1.ClusterNameLabel], constraints: constraints, known: true,
		reservedHost: reservedHost, onlyReserved: reservedHost != "", creates: creates, inUse: inUse,
	}
	return Found{domains{rule: r, byName: r.apply(hosts)}}
}

// Published returns what the cluster publishes.
func (f Found) Published() []clusterv1.FailureDomain { return f.domains.published() }

// IsAffected reports whether the change of a host enqueues the cluster.
func (f Found) IsAffected(ctx context.Context, c *infrav1.ElementalCluster, before, after *infrav1.ElementalHost) bool {
	w := Watches{Cache: &Cache{}}
	w.Cache.Set(client.ObjectKeyFromObject(c), f.domains)
	return w.effectOn(ctx, c, before, after) != noEffect
}

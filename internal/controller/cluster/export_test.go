package cluster

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// HostChanges is what wakes clusters when hosts' failure domains change.
func (r *Reconciler) HostChanges() handler.EventHandler { return r.hostChanges() }

// Looked is a cluster's look at the hosts in failure domains, for a control plane that
// makes a request; reserved is the one host that may be its first, if any.
type Looked struct{ spread spread }

// Look has the cluster look.
func Look(c *infrav1.ElementalCluster, request placement.Request, reserved string, hosts []*infrav1.ElementalHost) Looked {
	d := domains{
		label: domainLabel(c), cluster: c.Labels[clusterv1.ClusterNameLabel], request: request, known: true,
		reserved: reserved, onlyReserved: reserved != "",
	}
	return Looked{spread{domains: d, found: d.among(hosts)}}
}

// Published is what it publishes.
func (l Looked) Published() []clusterv1.FailureDomain { return l.spread.published() }

// Wakes reports whether a host's change has the cluster look again.
func (l Looked) Wakes(ctx context.Context, c *infrav1.ElementalCluster, was, is *infrav1.ElementalHost) bool {
	r := &Reconciler{}
	r.spread.keep(client.ObjectKeyFromObject(c), l.spread)
	return r.concern(ctx, c, was, is) != none
}

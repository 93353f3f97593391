package planinput

import (
	"context"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// maxProviderIDs bounds a plan. In a larger cluster a restore of etcd deletes no Nodes.
const maxProviderIDs = 2000

// providerIDs returns those of the Nodes of all hosts of the host's cluster, sorted, if etcd is to be
// restored on the host. A held host has no Machine, so its Node does not belong to the cluster.
func (r *Reader) providerIDs(ctx context.Context, host *infrav1.ElementalHost) ([]string, error) {
	if host.Spec.EtcdRestore == nil {
		return nil, nil
	}
	hosts, err := r.hostsOfCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)
	if err != nil || len(hosts) > maxProviderIDs {
		return nil, err
	}
	var ids []string
	for i := range hosts {
		if hosts[i].Spec.Claim.Phase != infrav1.ClaimHeld {
			ids = append(ids, plan.ProviderID(&hosts[i]))
		}
	}
	slices.Sort(ids)
	return ids, nil
}

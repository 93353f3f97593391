package snapshotgrant

import (
	"context"
	"net/http"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// RelayAddress returns the address of the storage to which the manager carries connections of the host. The
// caller has checked that the host is to reach it.
func (g *Granter) RelayAddress(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) (string, error) {
	policy := infra.Spec.EtcdSnapshots
	if policy.Bucket() == nil || policy.Destination.Route != infrav1.EtcdSnapshotRouteManager {
		return "", problem.NoStorage()
	}
	address, err := g.relays.Check(policy.Bucket().Endpoint)
	if err != nil {
		return "", unusable(ctx, host, err, seeCondition)
	}
	return address, nil
}

// relayed reports whether the host reaches the storage through the manager. It returns a problem if the host
// or the manager can't do that.
func (g *Granter) relayed(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) (bool, error) {
	if infra.Spec.EtcdSnapshots.Destination.Route != infrav1.EtcdSnapshotRouteManager {
		return false, nil
	}
	if !host.Supports(infrav1.OperationType(protocol.CapabilityEtcdSnapshotRelay)) {
		p := problem.New(http.StatusConflict, problem.Blank, "The agent is too old for the route Manager")
		p.Detail = "update the agent, or set spec.etcdSnapshots.destination.route of the ElementalCluster to Direct"
		return false, p
	}
	_, err := g.RelayAddress(ctx, host, infra)
	return err == nil, err
}

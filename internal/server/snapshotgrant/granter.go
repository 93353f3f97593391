package snapshotgrant

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

// lasts is how long an upload may begin. A host begins at once; clocks may differ.
const lasts = 10 * time.Minute

// seeCondition tells people where the reason is.
const seeCondition = "the condition " + infrav1.EtcdSnapshotsUploadedCondition + " of the ElementalCluster says why"

// Granter permits uploads. It is safe for concurrent use.
type Granter struct {
	live   client.Reader
	clock  clock.PassiveClock
	relays snapshotrelay.Endpoints
}

// New returns a Granter that reads Secrets from live, the API server. relays are the storages to which the
// manager carries connections of hosts.
func New(live client.Reader, c clock.PassiveClock, relays snapshotrelay.Endpoints) *Granter {
	return &Granter{live: live, clock: c, relays: relays}
}

// Grant permits the host to upload a snapshot, which it has, with that size. The name of the
// object has the host's name in it, so that no host writes the object of another. The caller
// has checked that the cluster wants this, and has a bucket.
func (g *Granter) Grant(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster, id string, size int64) (protocol.EtcdSnapshotGrant, error) {
	isRelayed, err := g.relayed(ctx, host, infra)
	if err != nil {
		return protocol.EtcdSnapshotGrant{}, err
	}
	b, err := g.open(ctx, host, infra)
	if err != nil {
		return protocol.EtcdSnapshotGrant{}, err
	}
	defer b.Close()
	name := b.Name(id, host.Name)
	granted, err := b.Grant(ctx, name, size, bucket.FactsOf(*host.EtcdSnapshot(id)), lasts)
	if err != nil {
		return protocol.EtcdSnapshotGrant{}, err
	}
	return protocol.EtcdSnapshotGrant{
		Object: name, URL: granted.URL, Headers: granted.Header, TrustBundle: granted.TrustBundle, Relay: isRelayed,
		ExpiresAt: g.clock.Now().Add(lasts).UTC(),
	}, nil
}

// open returns the folder of the host's cluster in its bucket, which the cluster must have. Its error is for
// the host.
func (g *Granter) open(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) (*bucket.Bucket, error) {
	b, err := bucket.Open(ctx, g.live, host.Namespace, host.Spec.Claim.ClusterName, *infra.Spec.EtcdSnapshots.Bucket())
	if err != nil {
		return nil, unusable(ctx, host, err, seeCondition)
	}
	return b, nil
}

// unusable returns what the host is told. It may not know what the manager's errors tell.
func unusable(ctx context.Context, host *infrav1.ElementalHost, err error, detail string) error {
	ctrl.LoggerFrom(ctx).Info("The destination of snapshots can't be used", "clusterName", host.Spec.Claim.ClusterName, "reason", err.Error())
	p := problem.New(http.StatusServiceUnavailable, problem.Blank, "The destination of snapshots can't be used")
	p.Detail, p.RetryAfter = detail, time.Minute
	return p
}

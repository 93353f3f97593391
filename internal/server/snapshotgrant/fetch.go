package snapshotgrant

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotkey"
)

// GrantFetch permits the host to download the snapshot of the restore that it was asked for, and
// gives it the key of that object. The caller has checked that the host's plan has the restore.
// infra may be nil.
func (g *Granter) GrantFetch(ctx context.Context, host *infrav1.ElementalHost, infra *infrav1.ElementalCluster) (protocol.EtcdSnapshotFetchGrant, error) {
	var none protocol.EtcdSnapshotFetchGrant
	source, err := g.confirmed(ctx, host)
	if err != nil {
		return none, err
	}
	if source == nil || infra == nil || infra.Spec.EtcdSnapshots.Bucket() == nil {
		return none, problem.NoSnapshotToFetch()
	}
	isRelayed, err := g.relayed(ctx, host, infra)
	if err != nil {
		return none, err
	}
	b, err := g.open(ctx, host, infra)
	if err != nil {
		return none, err
	}
	defer b.Close()
	cluster := client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.ClusterName}
	key, err := snapshotkey.Open(ctx, g.live, b, cluster, *source)
	if err == nil && key.Object.Snapshot.SHA256 != host.Spec.EtcdRestore.SHA256 {
		err = fmt.Errorf("object %s is no longer the snapshot that was confirmed", key.Object.Name)
	}
	if err != nil {
		return none, unusable(ctx, host, err, "the log of the manager says why")
	}
	granted, err := b.GrantDownload(ctx, key.Object.Name, lasts)
	if err != nil {
		return none, err
	}
	return protocol.EtcdSnapshotFetchGrant{
		Object: key.Object.Name, SizeBytes: key.Object.SizeBytes, URL: granted.URL, TrustBundle: granted.TrustBundle,
		FileKey: key.File, Relay: isRelayed, ExpiresAt: g.clock.Now().Add(lasts).UTC(),
	}, nil
}

// confirmed returns the source of the restore that the host was asked for; nil unless a person
// has confirmed that restore, and it is this host's and has not ended.
func (g *Granter) confirmed(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.EtcdRestoreUpload, error) {
	asked := host.Spec.EtcdRestore
	restore := &infrav1.ElementalEtcdRestore{}
	err := g.live.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: asked.RestoreName}, restore)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting ElementalEtcdRestore %s: %w", asked.RestoreName, err)
	}
	source := restore.Spec.Source.Uploaded // blank without the object, so nothing is confirmed
	if !etcdrestore.IsConfirmedFor(restore, host) || source == nil || source.ID != asked.SnapshotID {
		return nil, nil
	}
	return source, nil
}

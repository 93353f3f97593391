package bench

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/snapshots"
)

// quietShare is the share of Options.Rest (1/quietShare) for which writes are measured without snapshots in each round.
const quietShare = 20

// measureSnapshots measures writes to the API server while snapshots of etcd are taken.
func measureSnapshots(ctx context.Context, g *rig) error {
	report, err := snapshots.Measure(ctx, snapshots.Options{
		Checkout: g.options.Checkout, Cluster: g.cluster, Admin: g.admin, Namespace: bareNamespace,
		Count: g.options.Snapshots, Size: g.options.Database, Quiet: g.options.Rest / quietShare, Progress: g.progress,
	})
	g.add(report)
	return err
}

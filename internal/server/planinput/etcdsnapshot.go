package planinput

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// snapshotRequested wakes the host that is asked for a snapshot of etcd or its upload now, and
// the one that was asked before.
func (n *Notifier) snapshotRequested(ctx context.Context, cluster string, before, after *infrav1.ElementalCluster) {
	was, is := plan.EtcdSnapshotRequest(before), plan.EtcdSnapshotRequest(after)
	uploads, upload := plan.EtcdSnapshotToUpload(before), plan.EtcdSnapshotToUpload(after)
	isSame := equality.Semantic.DeepEqual(was, is) && equality.Semantic.DeepEqual(uploads, upload)
	if isSame {
		return
	}
	n.wakeCluster(ctx, after.Namespace, cluster, func(host *infrav1.ElementalHost) bool {
		return was != nil && was.HostName == host.Name || is != nil && is.HostName == host.Name ||
			uploads != nil && uploads.HostName == host.Name || upload != nil && upload.HostName == host.Name
	})
}

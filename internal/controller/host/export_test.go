package host

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// PausedOrResumed reports whether an event wakes hosts. before is nil for a new object.
func PausedOrResumed(before, after client.Object) bool {
	if before == nil {
		return pausedOrResumed().Create(event.CreateEvent{Object: after})
	}
	return pausedOrResumed().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
}

// HostsOfCluster returns the hosts that an event of the Cluster wakes.
func HostsOfCluster(ctx context.Context, r *Reconciler, cluster client.Object) []ctrl.Request {
	return r.hostsOfCluster(ctx, cluster)
}

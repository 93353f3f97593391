package reconcile

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Queue is a controller's work queue.
type Queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// HostEvents returns a handler that calls changed for each event of a host. before
// is nil for a new host, after for a deleted one. Updates that change nothing, such
// as those of a resync, are left out.
func HostEvents(changed func(ctx context.Context, before, after *infrav1.ElementalHost, q Queue)) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				changed(ctx, nil, host, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
			before, ok1 := e.ObjectOld.(*infrav1.ElementalHost)
			after, ok2 := e.ObjectNew.(*infrav1.ElementalHost)
			if ok1 && ok2 && before.ResourceVersion != after.ResourceVersion {
				changed(ctx, before, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				changed(ctx, host, nil, q)
			}
		},
	}
}

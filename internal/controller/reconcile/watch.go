package reconcile

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

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

// Changes passes new objects, and updates that concern the controller. It is for reconciles that
// ask another system each time, such as a workload cluster.
func Changes[T any](concerns func(before, after *T) bool) predicate.Funcs {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := any(e.ObjectOld).(*T)
			after, ok2 := any(e.ObjectNew).(*T)
			return ok1 && ok2 && concerns(before, after)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

package cluster

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Woken are the clusters that a change of a host wakes for their endpoint.
func Woken(r *Reconciler, e event.UpdateEvent) []ctrl.Request { return woken(r.hostHandler(), e) }

// WokenByMachine are the clusters that a change of a Machine wakes.
func WokenByMachine(r *Reconciler, e event.UpdateEvent) []ctrl.Request {
	return woken(r.machineHandler(), e)
}

func woken(h handler.EventHandler, e event.UpdateEvent) []ctrl.Request {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	h.Update(context.Background(), e, q)
	var out []ctrl.Request
	for range q.Len() {
		request, _ := q.Get()
		out = append(out, request)
	}
	return out
}

// HostHandler is what wakes clusters when hosts change what endpoints depend on.
func HostHandler(r *Reconciler) handler.EventHandler { return r.hostHandler() }

package cluster

import (
	"context"
	"slices"
	"time"

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

// WokenSoon are those that it wakes after a while.
func WokenSoon(r *Reconciler, e event.UpdateEvent) []ctrl.Request {
	q := &recorder{}
	r.hostHandler().Update(context.Background(), e, q)
	return q.soon
}

func woken(h handler.EventHandler, e event.UpdateEvent) []ctrl.Request {
	q := &recorder{}
	h.Update(context.Background(), e, q)
	return q.now
}

// recorder is a queue that nobody works off.
type recorder struct {
	queue

	now, soon []ctrl.Request
}

func (r *recorder) Add(request ctrl.Request) {
	if !slices.Contains(r.now, request) {
		r.now = append(r.now, request)
	}
}

func (r *recorder) AddAfter(request ctrl.Request, _ time.Duration) {
	if !slices.Contains(r.soon, request) {
		r.soon = append(r.soon, request)
	}
}

// HostHandler is what wakes clusters when hosts change what endpoints depend on.
func HostHandler(r *Reconciler) handler.EventHandler { return r.hostHandler() }

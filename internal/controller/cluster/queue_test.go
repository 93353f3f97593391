package cluster_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// queue records the requests that are added to it.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]

	// now are requests without a delay, soon those within a second.
	now, soon, later []ctrl.Request
}

func (q *queue) Add(r ctrl.Request) { q.now = append(q.now, r) }

func (q *queue) AddAfter(r ctrl.Request, after time.Duration) {
	if after <= time.Second {
		q.soon = append(q.soon, r)
	} else {
		q.later = append(q.later, r)
	}
}

// enqueued returns what a handler enqueues for an update, each request once.
func enqueued(h handler.EventHandler, e event.UpdateEvent) *queue {
	q := &queue{}
	h.Update(context.Background(), e, q)
	byName := func(a, b ctrl.Request) int { return strings.Compare(a.String(), b.String()) }
	for _, list := range []*[]ctrl.Request{&q.now, &q.soon, &q.later} {
		slices.SortFunc(*list, byName)
		*list = slices.Compact(*list)
	}
	return q
}

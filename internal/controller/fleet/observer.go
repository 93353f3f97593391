package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// object is a host or a machine.
type object interface {
	client.Object
	GetConditions() []metav1.Condition
}

// stay is the state that an object is in.
type stay struct {
	state string
	// since is zero if the state began before this process saw the object.
	since time.Time
}

// observer is a toolscache.ResourceEventHandler. It observes how long objects stay in a state, and
// passes changes on. Replicas that are not the leader remember states too, so that the next leader
// knows when they began. The informer calls it from one goroutine.
type observer[T object] struct {
	clock       clock.PassiveClock
	elected     <-chan struct{}
	watchFilter string
	durations   *prometheus.HistogramVec
	// changed is called on the leader with an object before and after a change.
	changed func(before, after T)

	states admission
	stays  map[types.UID]stay
}

// OnAdd is toolscache.ResourceEventHandler's.
func (o *observer[T]) OnAdd(added any, isInInitialList bool) {
	after, ok := added.(T)
	if !ok || !reconcile.IsWatched(after, o.watchFilter) {
		return
	}
	since := o.clock.Now()
	if isInInitialList {
		since = time.Time{}
	}
	o.enter(after, since)
}

// OnUpdate is toolscache.ResourceEventHandler's.
func (o *observer[T]) OnUpdate(old, updated any) {
	before, ok1 := old.(T)
	after, ok2 := updated.(T)
	if !ok1 || !ok2 {
		return
	}
	switch {
	case before.GetUID() != after.GetUID():
		// The watch missed that the object was deleted and another was created.
		o.leave(before.GetUID())
		o.OnAdd(after, false)
	case !reconcile.IsWatched(after, o.watchFilter):
		delete(o.stays, before.GetUID())
	default:
		if state := reason(after, infrav1.ReadyCondition); state != o.stays[after.GetUID()].state {
			o.leave(after.GetUID())
			o.enter(after, o.clock.Now())
		}
		if isElected(o.elected) {
			o.changed(before, after)
		}
	}
}

// OnDelete is toolscache.ResourceEventHandler's.
func (o *observer[T]) OnDelete(deleted any) {
	if unknown, ok := deleted.(toolscache.DeletedFinalStateUnknown); ok {
		deleted = unknown.Obj
	}
	if before, ok := deleted.(T); ok {
		o.leave(before.GetUID())
	}
}

func (o *observer[T]) enter(in T, since time.Time) {
	if o.stays == nil {
		o.stays = map[types.UID]stay{}
	}
	o.stays[in.GetUID()] = stay{state: reason(in, infrav1.ReadyCondition), since: since}
}

// leave observes how long the object was in its state. A state whose begin is not known, and the
// moment before the first condition, are not observed.
func (o *observer[T]) leave(uid types.UID) {
	was, known := o.stays[uid]
	delete(o.stays, uid)
	if known && !was.since.IsZero() && was.state != none && isElected(o.elected) {
		o.durations.WithLabelValues(o.states.label(was.state)).Observe(o.clock.Since(was.since).Seconds())
	}
}

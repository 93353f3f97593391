package hoststore

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

const (
	// eventBurst is how many Events of a host are recorded one by one before eventInterval
	// limits them.
	eventBurst    = 30
	eventInterval = 20 * time.Second
)

// eventLimiter limits the Events that hosts cause. The API server stores each, and what a
// host reports causes several.
type eventLimiter struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// full is when a host may cause eventBurst Events again.
	full  map[types.NamespacedName]time.Time
	swept time.Time
}

func newEventLimiter(c clock.PassiveClock) *eventLimiter {
	return &eventLimiter{clock: c, full: map[types.NamespacedName]time.Time{}}
}

// allow reports whether another Event of the host may be recorded by itself.
func (l *eventLimiter) allow(host types.NamespacedName) bool {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) >= eventBurst*eventInterval {
		l.swept = now
		for host, full := range l.full {
			if !now.Before(full) {
				delete(l.full, host)
			}
		}
	}
	full := l.full[host]
	if full.Before(now) {
		full = now
	}
	if full = full.Add(eventInterval); full.Sub(now) > eventBurst*eventInterval {
		return false
	}
	l.full[host] = full
	return true
}

// recordEvents records Events about the differences of two states. There are none about a
// new host's first status.
func (s *Store) recordEvents(before, after *infrav1.ElementalHost) {
	if before.Status.Connection == nil && before.Status.Inventory == nil {
		return
	}
	for _, e := range hoststatus.Events(before, after) {
		var regarding runtime.Object = after
		if !s.events.allow(client.ObjectKeyFromObject(after)) {
			regarding = seriesOf(after)
		}
		s.recorder.Eventf(regarding, nil, e.Type, e.Reason, "Report", "%s", e.Message)
	}
}

// seriesOf returns a reference to the host without its resource version. Events of one
// reason that refer to the same version become a series: one object that is rarely written.
func seriesOf(host *infrav1.ElementalHost) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalHost", Namespace: host.Namespace, Name: host.Name, UID: host.UID,
	}
}

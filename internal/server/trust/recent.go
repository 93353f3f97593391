package trust

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// formerKeyGrace is how long after a rotation the former key is only refused: HTTP
// requests that the agent sent with it may still arrive. An agent's request times out
// after half a minute.
const formerKeyGrace = time.Minute

// recentRotations remembers which hosts changed their key within formerKeyGrace. Rotations
// of another process are unknown, so until formerKeyGrace has passed since the start it
// includes every host.
type recentRotations struct {
	clock   clock.PassiveClock
	timers  *timer.Queue
	started time.Time

	mu sync.Mutex
	at map[types.NamespacedName]time.Time
}

func (r *recentRotations) add(host types.NamespacedName) {
	now := r.clock.Now()
	r.mu.Lock()
	r.at[host] = now
	r.mu.Unlock()
	r.timers.At(now.Add(formerKeyGrace), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.at[host].Equal(now) {
			delete(r.at, host)
		}
	})
}

func (r *recentRotations) includes(host types.NamespacedName) bool {
	now := r.clock.Now()
	r.mu.Lock()
	at, ok := r.at[host]
	r.mu.Unlock()
	return ok && now.Sub(at) < formerKeyGrace || now.Sub(r.started) < formerKeyGrace
}

package session

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// An agent polls once for each change of its plan, and sends other HTTP requests far
	// less often than allowed here.
	pollsPerSecond    = 5
	pollsBurst        = 100
	requestsPerSecond = 2
	requestsBurst     = 30
)

// AllowPoll reports whether the host may poll now; if not, after is when to retry.
func (t *Tracker) AllowPoll(host types.NamespacedName) (after time.Duration, ok bool) {
	return t.allow(host, func(s *session) **rate.Limiter { return &s.pollRate }, pollsPerSecond, pollsBurst)
}

// AllowRequest reports whether the host may send another HTTP request now, such as a
// report; if not, after is when to retry.
func (t *Tracker) AllowRequest(host types.NamespacedName) (after time.Duration, ok bool) {
	return t.allow(host, func(s *session) **rate.Limiter { return &s.requestRate }, requestsPerSecond, requestsBurst)
}

func (t *Tracker) allow(host types.NamespacedName, limiter func(*session) **rate.Limiter, perSecond rate.Limit, burst int) (after time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.session(host)
	t.scheduleCheck(host, s)
	s.hear()
	l := limiter(s)
	if *l == nil {
		*l = rate.NewLimiter(perSecond, burst)
	}
	if (*l).AllowN(t.clock.Now(), 1) {
		return 0, true
	}
	return time.Second, false
}

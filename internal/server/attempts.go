package server

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// attemptLifetime is far longer than the API server may take to carry out a
// request that was given up.
const attemptLifetime = 10 * time.Minute

// errUndecided tells that a host may or may not have been created.
var errUndecided = errors.New("the API server did not say whether it was done")

// attempts are hosts that may or may not have been created, by the key that they
// are for. An API server that is late carries a request out that was given up,
// perhaps before the cache shows it when the key asks again; a second host would
// make the key nobody's, for good. So the key is given the same one again.
type attempts struct {
	clock    clock.PassiveClock
	schedule *schedule

	mu    sync.Mutex
	hosts map[string]*infrav1.ElementalHost
}

// keep takes note of an attempt that is undecided.
func (a *attempts) keep(host *infrav1.ElementalHost) {
	key := host.Spec.Identity.KeyFingerprint
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts[key] = host
	a.schedule.at(a.clock.Now().Add(attemptLifetime), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.hosts[key] == host {
			delete(a.hosts, key)
		}
	})
}

// take returns the key's attempt, nil if there is none, and forgets it.
func (a *attempts) take(fingerprint string) *infrav1.ElementalHost {
	a.mu.Lock()
	defer a.mu.Unlock()
	host := a.hosts[fingerprint]
	delete(a.hosts, fingerprint)
	return host
}

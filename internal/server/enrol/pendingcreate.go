package enrol

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// pendingCreateLifetime is far longer than the API server may take to execute a request
// that timed out.
const pendingCreateLifetime = 10 * time.Minute

// errOutcomeUnknown is returned when a host may or may not have been created.
var errOutcomeUnknown = errors.New("the API server did not report whether the write succeeded")

// pendingCreates holds hosts whose creation has an unknown outcome, by key. A slow API
// server may execute a request that timed out, and the cache may not show the host yet
// when the key enrols again. A second host would make the key ambiguous for good, so the
// same host is created again.
type pendingCreates struct {
	clock  clock.PassiveClock
	timers *timer.Queue

	mu    sync.Mutex
	hosts map[string]*infrav1.ElementalHost
}

// add remembers a host whose creation has an unknown outcome.
func (p *pendingCreates) add(host *infrav1.ElementalHost) {
	key := host.Spec.Identity.KeyFingerprint
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts[key] = host
	p.timers.At(p.clock.Now().Add(pendingCreateLifetime), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hosts[key] == host {
			delete(p.hosts, key)
		}
	})
}

// take returns and removes the key's host, or returns nil.
func (p *pendingCreates) take(fingerprint string) *infrav1.ElementalHost {
	p.mu.Lock()
	defer p.mu.Unlock()
	host := p.hosts[fingerprint]
	delete(p.hosts, fingerprint)
	return host
}

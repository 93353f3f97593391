package preflight

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// firstPause is how long after the first look at a container runtime that does not run the
	// Watch looks again. It doubles with each look, up to longestPause.
	firstPause   = 15 * time.Second
	longestPause = 5 * time.Minute
)

// Watch looks again soon while the container runtime does not run. At boot it often starts after
// the agent, and until the agent has seen it no Machine gets the host. Use NewWatch.
type Watch struct {
	clock   retry.Clock
	look    func(ctx context.Context)
	stopped signal.Signal
}

// NewWatch returns a Watch that has look called, which reads the facts and calls Found.
func NewWatch(clock retry.Clock, look func(ctx context.Context)) *Watch {
	return &Watch{clock: clock, look: look, stopped: signal.New()}
}

// Found tells the Watch what a look has found; nil if nothing is known.
func (w *Watch) Found(facts *protocol.Preflight) {
	if facts != nil && facts.RuntimeSocket == protocol.FeatureDisabled {
		w.stopped.Raise()
		return
	}
	w.stopped.Clear()
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.stopped.Wait(ctx)
		for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
			if w.clock.Wait(ctx, pause) != nil {
				return nil //nolint:nilerr // the agent is being stopped
			}
			w.stopped.Clear()
			if w.look(ctx); len(w.stopped) == 0 {
				break // it runs, or an operation does, and the agent looks after it
			}
		}
	}
	return nil
}

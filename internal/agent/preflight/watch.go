package preflight

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// firstPause is how long after the first look at a host that may only be starting the Watch
	// looks again. It doubles with each look, up to longestPause.
	firstPause   = 15 * time.Second
	longestPause = 5 * time.Minute
)

// Watch looks again soon while the host may only be starting: its container runtime does not run,
// or a program is too slow to print its version. Until the agent has seen both, no Machine gets
// the host. Use NewWatch.
type Watch struct {
	clock retry.Clock
	look  func(ctx context.Context)
	again signal.Signal
}

// NewWatch returns a Watch that has look called, which reads the facts and calls Found.
func NewWatch(clock retry.Clock, look func(ctx context.Context)) *Watch {
	return &Watch{clock: clock, look: look, again: signal.New()}
}

// Found tells the Watch what a look has found.
func (w *Watch) Found(inventory protocol.Inventory) {
	if mayBeStarting(inventory) {
		w.again.Raise()
		return
	}
	w.again.Clear()
}

func mayBeStarting(inventory protocol.Inventory) bool {
	if p := inventory.Preflight; p != nil && p.RuntimeSocket == protocol.FeatureDisabled {
		return true
	}
	k := inventory.Kubernetes
	return k != nil && (printsNothing(k.Kubelet.Path, k.Kubelet.Version) ||
		printsNothing(k.Kubeadm.Path, k.Kubeadm.Version) ||
		printsNothing(k.ContainerRuntime.Path, k.ContainerRuntime.Version))
}

func printsNothing(path, version string) bool { return path != "" && version == "" }

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.again.Wait(ctx)
		for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
			if w.clock.Wait(ctx, pause) != nil {
				return nil //nolint:nilerr // the agent is being stopped
			}
			w.again.Clear()
			if w.look(ctx); len(w.again) == 0 {
				break // it has started, or an operation runs, and the agent looks after it
			}
		}
	}
	return nil
}

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ErrRestart ends an agent whose program was replaced: whoever started it
// starts the new one.
var ErrRestart = errors.New("the agent's program was replaced, and this process has to end")

// Updater keeps the agent's program at the release that the plan pins. Keep is
// called by one goroutine at a time, the rest by any.
type Updater interface {
	// Able reports whether the program can be replaced.
	Able() bool
	// Keep makes release the program. It is called only while no operation runs
	// or is due, and returns after how long it wants to be called again, 0 for
	// when something changes; or ErrRestart, whatever became of ctx; or an error
	// after which the agent can't go on. changed is called when Report is news.
	Keep(ctx context.Context, release *protocol.AgentRelease, changed func()) (again time.Duration, err error)
	// Connected confirms a program that is on trial: the manager has answered.
	Connected() error
	// Report is how the last update went, nil if there was none.
	Report() *protocol.AgentUpdate
}

// keepUpdated replaces the program if another one is wanted, and waits for
// work. No operation begins meanwhile, because it is the caller who would begin
// it.
func (a *Agent) keepUpdated(ctx context.Context) error {
	if a.Updater == nil {
		a.pauseForWork(ctx, 0)
		return nil
	}
	var again time.Duration
	var err error
	done := a.until(ctx, a.work, func(ctx context.Context) {
		again, err = a.Updater.Keep(ctx, a.Store.Plan().Desired.Agent, func() { signal(a.report) })
	})
	if err != nil || !done {
		return err
	}
	a.pauseForWork(ctx, again)
	return nil
}

// pauseForWork waits for work, at most for d if that isn't 0.
func (a *Agent) pauseForWork(ctx context.Context, d time.Duration) {
	if d > 0 {
		a.pause(ctx, d, a.work)
		return
	}
	select {
	case <-ctx.Done():
	case <-a.work:
	}
}

// confirmUpdate tells the updater that this program reaches the manager.
func (a *Agent) confirmUpdate() error {
	if a.Updater == nil {
		return nil
	}
	if err := a.Updater.Connected(); err != nil {
		return err
	}
	signal(a.report)
	return nil
}

// updateNews is what the manager doesn't know of the last update; all of it
// when again is true.
func (a *Agent) updateNews(again bool) *protocol.AgentUpdate {
	if a.Updater == nil {
		return nil
	}
	now := a.Updater.Report()
	if now == nil {
		return nil
	}
	news := *now
	news.Message = clip(news.Message)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !again && a.toldUpdate != nil && *a.toldUpdate == news {
		return nil
	}
	return &news
}

func (a *Agent) updateTold(update *protocol.AgentUpdate) {
	if update == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.toldUpdate = update
}

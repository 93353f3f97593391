package signal_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
)

// stopwatch measures on the clock of a synctest bubble.
type stopwatch struct {
	t  *testing.T
	at time.Time
}

func start(t *testing.T) *stopwatch { return &stopwatch{t, time.Now()} }

// expect checks how long it is since the last call.
func (w *stopwatch) expect(d time.Duration) {
	w.t.Helper()
	if got := time.Since(w.at); got != d {
		w.t.Errorf("it took %s, not %s", got, d)
	}
	w.at = time.Now()
}

// Signals that are pending stand for one, and none is lost.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := start(t)
		s := signal.New()
		s.Raise()
		s.Raise()
		s.Wait(t.Context())
		s.WaitFor(t.Context(), retry.System{}, time.Minute)
		watch.expect(time.Minute)
		s.Raise()
		s.WaitFor(t.Context(), retry.System{}, time.Minute)
		watch.expect(0)
		s.Raise()
		s.Clear()
		s.Clear()
		s.WaitFor(t.Context(), retry.System{}, time.Minute)
		watch.expect(time.Minute)
	})
}

func TestEndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := start(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		signal.New().Wait(ctx)
		var never signal.Signal
		never.WaitFor(ctx, retry.System{}, time.Minute)
		watch.expect(time.Second)
	})
}

func TestRaiseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := start(t)
		s := signal.New()
		s.RaiseAfter(t.Context(), retry.System{}, time.Second)()
		s.RaiseAfter(t.Context(), retry.System{}, 0)()
		s.WaitFor(t.Context(), retry.System{}, time.Minute)
		watch.expect(time.Minute) // both were stopped
		defer s.RaiseAfter(t.Context(), retry.System{}, time.Second)()
		s.Wait(t.Context())
		watch.expect(time.Second)
	})
}

func TestRunUntil(t *testing.T) {
	until := func(ctx context.Context) { <-ctx.Done() }
	last := func(d time.Duration) { <-time.After(d) } // on the bubble's clock
	for name, test := range map[string]struct {
		condition func() bool
		run       func(context.Context)
		done      bool
	}{
		"a signal ends it":          {nil, until, false},
		"a condition that holds":    {func() bool { return true }, until, false},
		"a condition that fails":    {func() bool { return false }, func(context.Context) { last(time.Minute) }, true},
		"it ends before the signal": {nil, func(context.Context) {}, true},
		"it is waited for, once ended": {nil, func(ctx context.Context) {
			<-ctx.Done()
			last(time.Second)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ended := signal.New(), false
				defer s.RaiseAfter(t.Context(), retry.System{}, time.Second)()
				done := s.RunUntil(t.Context(), test.condition, func(ctx context.Context) {
					test.run(ctx)
					ended = true
				})
				if done != test.done || !ended {
					t.Errorf("got %t, ended %t", done, ended)
				}
			})
		})
	}
}

// RunUntil is not done if it was stopped.
func TestRunUntilIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if signal.New().RunUntil(ctx, nil, func(ctx context.Context) { <-ctx.Done() }) {
			t.Error("it was done")
		}
	})
}

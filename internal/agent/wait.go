package agent

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Limits of the back-off between two attempts at an operation or at the endpoint.
const (
	retryBase = time.Second
	retryMax  = time.Minute
)

func newBackoff(random func() float64) *retry.Backoff {
	return &retry.Backoff{Base: retryBase, Max: retryMax, Rand: random}
}

// signal wakes one goroutine. Signals carry no data, so one that is pending stands for
// all.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// raise never blocks.
func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// clear takes back a signal that is pending.
func (s signal) clear() {
	select {
	case <-s:
	default:
	}
}

// wait waits for the signal or for the end of ctx.
func (s signal) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s:
	}
}

// waitFor waits for d, for wake, or for the end of ctx. wake may be nil.
func waitFor(ctx context.Context, clock retry.Clock, d time.Duration, wake signal) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = clock.Wait(ctx, d)
	}()
	select {
	case <-wake:
		cancel()
		<-over
	case <-over:
	}
}

// raiseAfter raises s after d unless stop is called before; a d of 0 means never.
func (s signal) raiseAfter(ctx context.Context, clock retry.Clock, d time.Duration) (stop func()) {
	if d == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if clock.Wait(ctx, d) == nil {
			s.raise()
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// always is the condition of a runUntil that every signal ends.
func always() bool { return true }

// runUntil runs f. If wake is raised while condition is true, it ends f's context,
// waits for f, and returns false.
func runUntil(ctx context.Context, wake signal, condition func() bool, f func(context.Context)) (done bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		f(ctx)
	}()
	for {
		select {
		case <-over:
			return ctx.Err() == nil
		case <-wake:
			if condition() {
				cancel()
				<-over
				return false
			}
		}
	}
}

// withoutMonotonic drops the monotonic clock, which means nothing in a file.
func withoutMonotonic(t time.Time) time.Time { return t.UTC().Round(0) }

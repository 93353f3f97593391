package signal

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Signal wakes one goroutine. Signals carry no data, so one that is pending stands for
// all. A nil Signal is never raised. Use New for others.
type Signal chan struct{}

// New returns a Signal that is not pending.
func New() Signal { return make(Signal, 1) }

// Raise never blocks.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Clear takes back a signal that is pending.
func (s Signal) Clear() {
	select {
	case <-s:
	default:
	}
}

// Wait waits for the signal or for the end of ctx.
func (s Signal) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s:
	}
}

// WaitFor waits for d, for the signal, or for the end of ctx.
func (s Signal) WaitFor(ctx context.Context, clock retry.Clock, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = clock.Wait(ctx, d)
	}()
	select {
	case <-s:
		cancel()
		<-over
	case <-over:
	}
}

// RaiseAfter raises the signal after d unless stop is called before; a d of 0 means never.
func (s Signal) RaiseAfter(ctx context.Context, clock retry.Clock, d time.Duration) (stop func()) {
	if d == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if clock.Wait(ctx, d) == nil {
			s.Raise()
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// RunUntil runs f. If the signal is raised while condition is true, it ends f's context,
// waits for f, and returns false. Without a condition, every signal ends f.
func (s Signal) RunUntil(ctx context.Context, condition func() bool, f func(context.Context)) (done bool) {
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
		case <-s:
			if condition == nil || condition() {
				cancel()
				<-over
				return false
			}
		}
	}
}

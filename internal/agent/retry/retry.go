package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock reads the time and waits.
type Clock interface {
	Now() time.Time
	// Wait returns nil after d, or the cause of ctx's end if that comes first.
	Wait(ctx context.Context, d time.Duration) error
}

// System is the machine's clock.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// Wait waits on a timer.
func (System) Wait(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Backoff is exponential with full jitter: the n-th wait is uniformly random between 0
// and Base doubled n times, at most Max. So the hosts of a fleet that lost its manager do
// not return at the same time. One goroutine may use it.
type Backoff struct {
	Base time.Duration
	Max  time.Duration
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64

	attempt int
}

// Limits of NewBackoff.
const (
	base = time.Second
	most = time.Minute
)

// NewBackoff returns the Backoff between two attempts at an operation or at the endpoint: from a
// second to a minute. random is its Rand.
func NewBackoff(random func() float64) *Backoff { return &Backoff{Base: base, Max: most, Rand: random} }

// Next returns the time to wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	ceiling := b.Max
	if b.attempt < 32 {
		if d := b.Base << b.attempt; d > 0 && d < b.Max {
			ceiling = d
		}
		b.attempt++
	}
	return b.Within(ceiling)
}

// Within returns a uniformly random time of at most d. It does not count as an attempt.
func (b *Backoff) Within(d time.Duration) time.Duration {
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(random() * float64(d))
}

// Reset starts over at Base. Call it after a success.
func (b *Backoff) Reset() { b.attempt = 0 }

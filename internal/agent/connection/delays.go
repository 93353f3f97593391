package connection

import (
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Limits of the delay between two attempts to reach the manager.
const (
	baseDelay = time.Second
	maxDelay  = time.Minute
	// A host without a network begins an attempt at most
	// maxUnreachableDelay+minUnreachableDelay after the previous attempt began. So it
	// reconnects within five seconds of its network's return.
	maxUnreachableDelay = 4 * time.Second
	minUnreachableDelay = 500 * time.Millisecond
	maxRefusedDelay     = 5 * time.Minute
)

// Delays computes how long to wait between two attempts to reach the manager. Use
// NewDelays. One goroutine may use it.
//
// Without a network, delays are short: attempts are cheap, and the host must return
// soon. If the manager answers with an error or cannot be trusted, delays grow
// exponentially. If the manager says when it will be available, the delay is uniformly
// random between that time and twice that time: hosts that back off further would
// return after all others.
type Delays struct {
	unreachable, refused *retry.Backoff
}

// NewDelays returns Delays. random returns a number in [0,1); nil means math/rand.
func NewDelays(random func() float64) *Delays {
	return &Delays{
		unreachable: &retry.Backoff{Base: baseDelay, Max: maxUnreachableDelay, Rand: random},
		refused:     &retry.Backoff{Base: baseDelay, Max: maxDelay, Rand: random},
	}
}

// AfterError returns the delay after an attempt that failed with err. took is the
// duration of the attempt: the time it waited for the network counts as delay.
func (d *Delays) AfterError(err error, took time.Duration) time.Duration {
	if client.Unreachable(err) {
		d.unreachable.Max = max(maxUnreachableDelay-took, minUnreachableDelay)
		return d.unreachable.Next()
	}
	after := client.RetryAfter(err)
	if after > 0 && client.Unavailable(err) {
		// Exponential delays would bring all hosts of a fleet back within one second.
		return after + d.refused.Within(min(after, maxDelay))
	}
	d.refused.Max = maxDelay
	if state := StateAfter(err); state == Revoked || state == Locked {
		d.refused.Max = maxRefusedDelay
	}
	return after + d.refused.Next()
}

// AfterEarlyAnswer returns the delay after an answer that came too early and brought
// nothing new.
func (d *Delays) AfterEarlyAnswer() time.Duration { return d.refused.Next() }

// Reset starts over after a success.
func (d *Delays) Reset() {
	d.unreachable.Reset()
	d.refused.Reset()
}

package agent

import (
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// waits are how long the host waits between two attempts to reach the manager.
// Where there is no network an attempt costs nobody anything, and the host is to
// be back soon once there is one. A manager that answers, or that cannot be
// trusted, is left alone for longer and longer, except where it says itself when it
// will be able to answer: then the host is there between that time and twice that,
// as whoever stays away longer comes when all others are done.
type waits struct {
	unreachable, refused *retry.Backoff
}

func (a *Agent) newWaits() *waits {
	return &waits{unreachable: a.backoff(reachMax), refused: a.backoff(retryMax)}
}

// next is the time to wait after an attempt that failed and took as long as
// given. What an attempt took, waiting for an answer from the network, counts.
func (w *waits) next(err error, took time.Duration) time.Duration {
	if client.Unreachable(err) {
		w.unreachable.Max = max(reachMax-took, reachLeast)
		return w.unreachable.Next()
	}
	after := client.RetryAfter(err)
	if after > 0 && client.Unavailable(err) {
		// The exponent would have a fleet's first returns in one second.
		return after + w.refused.Within(min(after, retryMax))
	}
	w.refused.Max = retryMax
	if state := judge(err); state == Revoked || state == Locked {
		w.refused.Max = refusedMax
	}
	return after + w.refused.Next()
}

func (w *waits) reset() {
	w.unreachable.Reset()
	w.refused.Reset()
}

package agent

import (
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

// withoutMonotonic drops the monotonic clock, which means nothing in a file.
func withoutMonotonic(t time.Time) time.Time { return t.UTC().Round(0) }

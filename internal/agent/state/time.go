package state

import "time"

// WithoutMonotonic drops the monotonic clock, which means nothing in a file.
func WithoutMonotonic(t time.Time) time.Time { return t.UTC().Round(0) }

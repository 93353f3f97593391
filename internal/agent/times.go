package agent

import "time"

// withoutMonotonic drops the monotonic clock, which means nothing in a file.
func withoutMonotonic(t time.Time) time.Time { return t.UTC().Round(0) }

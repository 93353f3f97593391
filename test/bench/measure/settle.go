package measure

import (
	"context"
	"fmt"
	"time"
)

// Settling says when a figure counts as settled.
type Settling struct {
	// Every is the time between two looks.
	Every time.Duration
	// Looks is how many in a row must be alike.
	Looks int
	// Within is how far alike ones are apart at most, as a share.
	Within float64
	// Limit ends the wait.
	Limit time.Duration
}

// Wait looks until the figure has settled and returns the last look. When the limit comes first it returns that too, and
// settled is false. The end of ctx is an error.
func (s Settling) Wait(ctx context.Context, look func() (uint64, error)) (last uint64, settled bool, err error) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	limit := time.NewTimer(s.Limit)
	defer limit.Stop()
	var low, high uint64
	for alike := 0; ; {
		if last, err = look(); err != nil {
			return 0, false, err
		}
		if low, high = min(low, last), max(high, last); alike == 0 || float64(high-low) > s.Within*float64(last) {
			low, high, alike = last, last, 0
		}
		if alike++; alike >= s.Looks {
			return last, true, nil
		}
		select {
		case <-ticker.C:
		case <-limit.C:
			return last, false, nil
		case <-ctx.Done():
			return 0, false, fmt.Errorf("waiting for a figure to settle: %w", context.Cause(ctx))
		}
	}
}

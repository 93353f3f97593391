package measure

import (
	"math"
	"slices"
	"time"
)

// Quantile returns the smallest sample that a share q of all samples, from 0 to 1, does not exceed; 0 without samples.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

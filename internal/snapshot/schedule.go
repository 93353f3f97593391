package snapshot

import (
	"hash/fnv"
	"time"
)

// due returns the last time of a schedule that is not after now. The times of a cluster are
// shifted by a part of the interval that follows from its name.
func due(cluster string, interval time.Duration, now time.Time) time.Time {
	seconds := int64(interval / time.Second)
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(cluster)) // a hash never fails
	shift := int64(sum.Sum32()) % seconds
	at := now.Unix()
	return time.Unix(at-(at-shift)%seconds, 0).UTC()
}

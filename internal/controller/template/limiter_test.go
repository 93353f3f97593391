package template

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// If hundreds of templates match all hosts, each change of a host affects all of them.
func TestIntervalGrowsWithTheNumberOfTemplates(t *testing.T) {
	now := time.Now()
	for count, want := range map[int]time.Duration{1: Interval, 100: Interval, 400: 4 * Interval} {
		l := &limiter{}
		for i := range count {
			l.updated(now, client.ObjectKey{Name: fmt.Sprint(i)})
		}
		if wait := l.wait(now, client.ObjectKey{Name: "0"}); wait != want {
			t.Errorf("%d templates: %s", count, wait)
		}
	}
}

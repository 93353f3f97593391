package template

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Hundreds of templates match all hosts, and each change of a host concerns all.
func TestManyTemplatesTakeLonger(t *testing.T) {
	now := time.Now()
	for count, want := range map[int]time.Duration{1: Interval, 100: Interval, 400: 4 * Interval} {
		p := &pace{}
		for i := range count {
			p.looked(now, client.ObjectKey{Name: fmt.Sprint(i)})
		}
		if wait := p.wait(now, client.ObjectKey{Name: "0"}); wait != want {
			t.Errorf("%d templates: %s", count, wait)
		}
	}
}

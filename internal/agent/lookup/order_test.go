package lookup_test

import (
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/lookup"
)

// Only a look-up that began before one that is recorded comes too late.
func TestOrder(t *testing.T) {
	o := &lookup.Order{}
	first, second, third := o.Begin(), o.Begin(), o.Begin()
	for _, step := range []struct {
		lookup int64
		want   bool
	}{{second, true}, {first, false}, {second, true}, {third, true}, {second, false}} {
		if got := o.Record(step.lookup); got != step.want {
			t.Errorf("look-up %d is recorded: %v, want %v", step.lookup, got, step.want)
		}
	}
}

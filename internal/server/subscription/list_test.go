package subscription_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/subscription"
)

func TestSubscribersAreCalledUntilTheyStop(t *testing.T) {
	g := NewWithT(t)
	var l subscription.List
	l.Changed()
	first, second := 0, 0
	stop := l.Add(func() { first++ })
	l.Add(func() { second++ })
	l.Changed()
	stop()
	stop()
	l.Changed()
	g.Expect([]int{first, second}).To(Equal([]int{1, 2}))
}

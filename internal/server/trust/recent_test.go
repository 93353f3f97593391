package trust

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

func TestRecentRotations(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	timers := timer.NewQueue(clock)
	r := &recentRotations{clock: clock, timers: timers, started: clock.Now(), at: map[types.NamespacedName]time.Time{}}
	host, other := types.NamespacedName{Name: "host"}, types.NamespacedName{Name: "other"}
	g.Expect(r.includes(other)).To(BeTrue(), "right after the start every host may have rotated")
	clock.Step(formerKeyGrace)
	g.Expect(r.includes(other)).To(BeFalse())
	r.add(host)
	g.Expect(r.includes(host)).To(BeTrue())
	g.Expect(r.includes(other)).To(BeFalse())
	clock.Step(formerKeyGrace)
	g.Expect(r.includes(host)).To(BeFalse())
	go timers.Run(t.Context())
	g.Eventually(func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.at)
	}, time.Minute).Should(BeZero(), "expired entries are removed")
}

package session

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// ordinary is the size of an ordinary host's status.
const ordinary = 5 << 10

func hostNumber(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "edge", Name: fmt.Sprintf("other-%d", i)}
}

func TestWriteBudgetOfOneHost(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	b := NewWriteBudget(clock)
	written := 0
	for range 10000 {
		if _, ok := b.Take(host, ClassApproved, ordinary); ok {
			written++
		}
	}
	g.Expect(written).To(BeNumerically("~", 114, 1), "the burst")
	after, ok := b.Take(host, ClassApproved, ordinary)
	g.Expect(ok).To(BeFalse())
	g.Expect(after).To(BeNumerically("~", 2*time.Second, 2*time.Second))
	_, ok = b.Take(hostNumber(1), ClassApproved, 64<<10)
	g.Expect(ok).To(BeTrue(), "another host")
	clock.Step(after)
	_, ok = b.Take(host, ClassApproved, ordinary)
	g.Expect(ok).To(BeTrue(), "it may write when it was told to try again")
	clock.Step(time.Hour)
	g.Expect(b.UntilAllowed(host, ClassApproved)).To(BeZero())
	b.Spend(hostNumber(2), ClassApproved, ordinary)
	g.Expect(b.hosts).To(HaveLen(1), "hosts whose spending is compensated are forgotten")
}

// Hosts that write as much as they can take nothing from those that write little, nor from
// those of another class.
func TestThreat44_FewHostsUseUpTheBudgetOfAll(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	b := NewWriteBudget(clock)
	const rogues = 400
	written := 0
	for minute := range 10 {
		for range 20 {
			for i := range rogues {
				if _, ok := b.Take(hostNumber(i), ClassApproved, 64<<10); ok {
					written += 68 << 10
				}
			}
			clock.Step(3 * time.Second)
		}
		for i := range 1000 {
			_, ok := b.Take(types.NamespacedName{Namespace: "honest", Name: fmt.Sprintf("%d-%d", minute, i)}, ClassApproved, ordinary)
			g.Expect(ok).To(BeTrue(), "an honest host in minute %d", minute)
		}
	}
	t.Logf("%d rogues wrote %d MiB a minute", rogues, written/10>>20)
	g.Expect(written / 10).To(BeNumerically("<", 100<<20))

	// Strangers use up only the budget of strangers.
	strangers := 0
	for i := range 1000 {
		for range 10 {
			if _, ok := b.Take(hostNumber(i), ClassReadopted, 4<<10); ok {
				strangers += 8 << 10
			}
		}
	}
	g.Expect(strangers).To(BeNumerically("<=", 4<<20+8<<10))
	_, ok := b.Take(types.NamespacedName{Name: "invited"}, ClassPending, 4<<10)
	g.Expect(ok).To(BeTrue())
}

package direct

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// Users for whom there is no room are refused, and keep out nobody who has one.
func TestThreat61_TableOfUsersIsBounded(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakePassiveClock(time.Now())
	l := newLimits(now)
	begin := func(name string) bool {
		done, ok := l.begin(name)
		if ok {
			done()
		}
		return ok
	}
	for i := range maxUsers {
		g.Expect(begin(strconv.Itoa(i))).To(BeTrue())
	}
	for i := range 10 {
		g.Expect(begin("late-" + strconv.Itoa(i))).To(BeFalse())
	}
	g.Expect(l.users).To(HaveLen(maxUsers))
	g.Expect(begin("0")).To(BeTrue())
	now.SetTime(now.Now().Add(userBurst * time.Minute))
	g.Expect(begin("late-0")).To(BeTrue(), "users who were not there lately make room")
	g.Expect(l.users).To(HaveLen(1))
}

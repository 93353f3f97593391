package ratelimit

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestLimiterIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	l := New(clock, 1, 2)
	for _, want := range []bool{true, true, false} {
		g.Expect(l.Allow("10.0.0.1:1000")).To(Equal(want))
	}
	g.Expect(l.Allow("10.0.0.1:2000")).To(BeFalse(), "another port is the same source")
	g.Expect(l.Allow("10.0.0.2:1000")).To(BeTrue())
	g.Expect(l.Allow("[fd00::1]:1000")).To(BeTrue())
	g.Expect(l.Allow("[fd00::2]:1000")).To(BeTrue())
	g.Expect(l.Allow("[fd00::3]:1000")).To(BeFalse(), "a /64 is one source")
	g.Expect(l.Allow("invalid")).To(BeTrue())
	clock.SetTime(clock.Now().Add(time.Second))
	g.Expect(l.Allow("10.0.0.1:1000")).To(BeTrue())

	for i := range 2 * maxSources {
		l.Allow(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	g.Expect(len(l.sources)).To(BeNumerically("<=", maxSources))
	clock.SetTime(clock.Now().Add(time.Hour))
	g.Expect(l.Allow("192.0.2.1:1")).To(BeTrue())
	g.Expect(len(l.sources)).To(BeNumerically("<", 10))
}

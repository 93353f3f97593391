package ratelimit

import (
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// One source gets the whole rate while nobody else wants it, and never all of the burst.
func TestSharedKeepsHalfForOthers(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	const perSecond, burst = 10, 100
	s := NewShared(clock, perSecond, burst)
	take := func(address string) int {
		source := netip.PrefixFrom(netip.MustParseAddr(address), 32)
		taken := 0
		for range 10 * burst {
			if s.Allow(source) {
				taken++
			}
		}
		return taken
	}
	g.Expect(take("192.0.2.1")).To(Equal(burst / 2))
	clock.SetTime(clock.Now().Add(time.Second))
	g.Expect(take("192.0.2.1")).To(Equal(perSecond), "nobody else wants it")
	g.Expect(take("192.0.2.2")).To(Equal(modestBurst))
	g.Expect(take("192.0.2.3")).To(Equal(modestBurst))
	clock.SetTime(clock.Now().Add(time.Second))
	g.Expect(take("192.0.2.1")).To(Equal(modestRate), "others have taken from the lower half")
}

// Any number of sources together get no more than the rate.
func TestSharedIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	const perSecond, burst = 10, 100
	s := NewShared(clock, perSecond, burst)
	take := func() int {
		taken := 0
		for i := range 2000 {
			if s.Allow(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)) {
				taken++
			}
		}
		return taken
	}
	g.Expect(take()).To(Equal(burst))
	clock.SetTime(clock.Now().Add(time.Second))
	g.Expect(take()).To(Equal(perSecond))
}

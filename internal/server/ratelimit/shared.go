package ratelimit

import (
	"net/netip"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// modestRate and modestBurst are what a source gets of a Shared however much others take.
	modestRate  = 1
	modestBurst = 10
)

// Shared is one token bucket for all sources. Its lower half is for sources that have taken
// little lately, so one source can have the whole rate while nobody else wants it, but not
// keep out others. It is safe for concurrent use.
type Shared struct {
	clock  clock.PassiveClock
	all    *rate.Limiter
	modest *Limiter
}

// NewShared returns a Shared of that rate and burst.
func NewShared(c clock.PassiveClock, perSecond float64, burst int) *Shared {
	return &Shared{clock: c, all: rate.NewLimiter(rate.Limit(perSecond), burst), modest: New(c, modestRate, modestBurst)}
}

// Allow reports whether the source may proceed.
func (s *Shared) Allow(source netip.Prefix) bool {
	now := s.clock.Now()
	left := s.all.TokensAt(now) - 1
	if !s.modest.allow(source) && left < float64(s.all.Burst())/2 {
		return false
	}
	return s.all.AllowN(now, 1)
}

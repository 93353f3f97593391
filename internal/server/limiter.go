package server

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// maxSources bounds the limiter's table.
	maxSources = 8192
	// sourceIdle is when a source has its whole burst back for sure.
	sourceIdle = 10 * time.Minute
	// An IPv6 host commands a whole /64.
	ipv6Prefix = 64
)

// limiter limits the rate of requests by source, for callers that are not known.
// Behind a proxy or NAT many hosts are one source, so the limits are generous:
// they keep one source from using up the server, not somebody from guessing 256
// bits.
type limiter struct {
	clock clock.PassiveClock
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	sources map[netip.Prefix]*source
	evicted time.Time
	// overflow is shared by those who find the table full.
	overflow *rate.Limiter
}

type source struct {
	limiter *rate.Limiter
	last    time.Time
}

func newLimiter(c clock.PassiveClock, perSecond float64, burst int) *limiter {
	return &limiter{
		clock: c, rate: rate.Limit(perSecond), burst: burst,
		sources: map[netip.Prefix]*source{}, overflow: rate.NewLimiter(rate.Limit(perSecond), burst),
	}
}

// allow tells whether a request of that remote address may go on.
func (l *limiter) allow(remote string) bool {
	now := l.clock.Now()
	key := sourceOf(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sources[key]
	if s == nil {
		if len(l.sources) >= maxSources && !l.evict(now) {
			return l.overflow.AllowN(now, 1)
		}
		s = &source{limiter: rate.NewLimiter(l.rate, l.burst)}
		l.sources[key] = s
	}
	s.last = now
	return s.limiter.AllowN(now, 1)
}

// evict makes room by dropping sources that were idle, not too often.
func (l *limiter) evict(now time.Time) bool {
	if now.Sub(l.evicted) < time.Second {
		return false
	}
	l.evicted = now
	for key, s := range l.sources {
		if now.Sub(s.last) > sourceIdle || s.limiter.TokensAt(now) >= float64(l.burst) {
			delete(l.sources, key)
		}
	}
	return len(l.sources) < maxSources
}

func sourceOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = ipv6Prefix
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

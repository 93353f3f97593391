package ratelimit

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
	// sourceIdle is the time after which an idle source is evicted, even if its burst is not
	// full.
	sourceIdle = 10 * time.Minute
	// ipv6Prefix: one IPv6 host can use a whole /64.
	ipv6Prefix = 64
)

// Limiter is a token bucket for each source. Many hosts behind a proxy or NAT are
// one source, so the limits are generous: they keep one source from exhausting the
// server. They are not needed against guessing, as tokens have 256 bits.
//
// An LRU cache would not do: a caller with many addresses could evict sources that
// have used up their burst. Here only sources with a full burst are evicted.
type Limiter struct {
	clock clock.PassiveClock
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	sources map[netip.Prefix]*source
	evicted time.Time
	// overflow is shared by sources that don't fit into the table.
	overflow *rate.Limiter
}

type source struct {
	limiter *rate.Limiter
	last    time.Time
}

// New returns a Limiter of that rate and burst for each source.
func New(c clock.PassiveClock, perSecond float64, burst int) *Limiter {
	return &Limiter{
		clock: c, rate: rate.Limit(perSecond), burst: burst,
		sources: map[netip.Prefix]*source{}, overflow: rate.NewLimiter(rate.Limit(perSecond), burst),
	}
}

// Allow reports whether a connection or HTTP request of that remote address, host:port,
// may proceed.
func (l *Limiter) Allow(remote string) bool { return l.allow(SourceOf(remote)) }

func (l *Limiter) allow(key netip.Prefix) bool {
	now := l.clock.Now()
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

// evict removes sources that have their full burst, at most once a second. It reports
// whether the table has room afterwards.
func (l *Limiter) evict(now time.Time) bool {
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

// SourceOf returns the source of a remote address, host:port: an IPv4 address or an
// IPv6 /64. It is the zero Prefix for anything else.
func SourceOf(remote string) netip.Prefix {
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

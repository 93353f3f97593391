package authority

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// countInterval is how long a count of hosts is cached for metrics. Counting reads all
// hosts, and metrics may be scraped every second.
const countInterval = 10 * time.Second

// cachedCount caches how many hosts have not acknowledged a bundle.
type cachedCount struct {
	clock clock.PassiveClock
	hosts func(bundle string) (int, error)

	mu     sync.Mutex
	bundle string
	at     time.Time
	last   float64
}

func (c *cachedCount) get(m *material) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.bundle == m.bundle && now.Sub(c.at) < countInterval {
		return c.last
	}
	n, err := c.hosts(m.bundle)
	if err != nil {
		return -1
	}
	c.bundle, c.at, c.last = m.bundle, now, float64(n)
	return c.last
}

// RegisterMetrics registers the metrics of the CA and of a rotation's progress. Hosts are
// counted during a scrape, at most once in countInterval, until the context ends.
func (r *Reconciler) RegisterMetrics(ctx context.Context, registerer prometheus.Registerer) error {
	const namespace, subsystem = "elemental", "agent_api_ca"
	gauge := func(options prometheus.GaugeOpts, value func(*material) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(options, func() float64 {
			m := r.Authority.current()
			if m == nil {
				return 0
			}
			return value(m)
		})
	}
	unacknowledged := &cachedCount{clock: r.Clock, hosts: func(bundle string) (int, error) {
		u, err := r.hostsWithout(ctx, bundle)
		if err != nil {
			return 0, err
		}
		return u.missing, nil
	}}
	for _, c := range []prometheus.Collector{
		gauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "roots",
			Help: "CA certificates that hosts are told to trust: more than one during a rotation.",
		}, func(m *material) float64 { return float64(len(m.roots)) }),
		gauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "not_after_seconds",
			Help: "When the CA that signs expires, in seconds since 1970.",
		}, func(m *material) float64 { return float64(m.signer.cert.NotAfter.Unix()) }),
		gauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "hosts_unacknowledged",
			Help: "Approved hosts that have not acknowledged the CA certificates that they are told to trust.",
		}, unacknowledged.get),
	} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

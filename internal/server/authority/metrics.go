package authority

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// countAgain is how soon hosts are counted again for metrics: it takes a look at all
// of them, and anybody may ask for metrics each second.
const countAgain = 10 * time.Second

// count remembers how many hosts have not acknowledged a bundle.
type count struct {
	clock clock.PassiveClock
	hosts func(bundle string) (int, error)

	mu     sync.Mutex
	bundle string
	at     time.Time
	last   float64
}

func (c *count) of(m *material) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.bundle == m.bundle && now.Sub(c.at) < countAgain {
		return c.last
	}
	n, err := c.hosts(m.bundle)
	if err != nil {
		return -1
	}
	c.bundle, c.at, c.last = m.bundle, now, float64(n)
	return c.last
}

// RegisterMetrics registers what tells of the authority and of a rotation's
// progress. Hosts are counted when somebody asks, each countAgain at most, for as long
// as the context lasts.
func (r *Reconciler) RegisterMetrics(ctx context.Context, registerer prometheus.Registerer) error {
	const namespace, subsystem = "elemental", "agent_api_ca"
	gauge := func(name, help string, value func(*material) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
		}, func() float64 {
			m := r.Authority.current()
			if m == nil {
				return 0
			}
			return value(m)
		})
	}
	counted := &count{clock: r.Clock, hosts: func(bundle string) (int, error) {
		u, err := r.hostsWithout(ctx, bundle)
		if err != nil {
			return 0, err
		}
		return u.count, nil
	}}
	for _, c := range []prometheus.Collector{
		gauge("roots", "Roots that hosts are told to trust: more than one during a rotation.",
			func(m *material) float64 { return float64(len(m.roots)) }),
		gauge("not_after_seconds", "When the CA that signs expires, in seconds since 1970.",
			func(m *material) float64 { return float64(m.signer.cert.NotAfter.Unix()) }),
		gauge("hosts_unacknowledged", "Approved hosts that have not acknowledged the roots that they are told to trust.",
			counted.of),
	} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

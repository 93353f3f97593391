package authority

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers what tells of the authority and of a rotation's
// progress. Hosts are counted when somebody asks, for as long as the context lasts.
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
	for _, c := range []prometheus.Collector{
		gauge("roots", "Roots that hosts are told to trust: more than one during a rotation.",
			func(m *material) float64 { return float64(len(m.roots)) }),
		gauge("not_after_seconds", "When the CA that signs expires, in seconds since 1970.",
			func(m *material) float64 { return float64(m.signer.cert.NotAfter.Unix()) }),
		gauge("hosts_unacknowledged", "Approved hosts that have not acknowledged the roots that they are told to trust.",
			func(m *material) float64 {
				u, err := r.hostsWithout(ctx, m.bundle)
				if err != nil {
					return -1
				}
				return float64(u.count)
			}),
	} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

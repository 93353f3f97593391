package listener

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of listeners.
type Metrics struct {
	refused         prometheus.Counter
	evicted         *prometheus.CounterVec
	unauthenticated prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	const namespace, subsystem = "elemental", "agent_api"
	m := &Metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "refused_connections_total",
			Help: "Connections closed before a handshake, because their source made too many.",
		}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "evicted_connections_total",
			Help: "Connections closed because there were too many or they took too long, by limit: handshake, unauthenticated, key.",
		}, []string{"limit"}),
		unauthenticated: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "unauthenticated_connections",
			Help: "Open connections that have used no key of a known host.",
		}),
	}
	for _, metric := range []prometheus.Collector{m.refused, m.evicted, m.unauthenticated} {
		if err := registerer.Register(metric); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

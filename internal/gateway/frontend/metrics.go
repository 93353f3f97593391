package frontend

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	connections prometheus.Gauge
	refused     prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "elemental", Subsystem: "gateway_frontend", Name: "connections",
			Help: "Open connections of users to the gateway.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "gateway_frontend", Name: "refused_total",
			Help: "Connections of users that were closed at once because there were too many.",
		}),
	}
	for _, c := range []prometheus.Collector{m.connections, m.refused} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of the gateway's frontend: %w", err)
		}
	}
	return m, nil
}

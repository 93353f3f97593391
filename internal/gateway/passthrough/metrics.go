package passthrough

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Server.
type metrics struct {
	unrouted, routed       prometheus.Gauge
	toCluster, fromCluster prometheus.Counter
	results                *prometheus.CounterVec
}

// newMetrics registers the metrics, with a zero for each outcome.
func newMetrics(registerer prometheus.Registerer, ofRouter dialErrors) (*metrics, error) {
	const namespace, subsystem = "elemental", "gateway_passthrough"
	connections := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "connections",
		Help: "Open connections by state: routed, unrouted (not yet or not to be).",
	}, []string{"state"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "bytes_total",
		Help: "Bytes of routed connections by direction: to_cluster, from_cluster.",
	}, []string{"direction"})
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "results_total",
		Help: "Connections by outcome: routed, or why not.",
	}, []string{"outcome"})
	for _, metric := range []prometheus.Collector{connections, bytes, results} {
		if err := registerer.Register(metric); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, o := range outcomes() {
		results.WithLabelValues(string(o))
	}
	for _, class := range ofRouter {
		results.WithLabelValues(string(class.outcome))
	}
	return &metrics{
		unrouted: connections.WithLabelValues("unrouted"), routed: connections.WithLabelValues("routed"),
		toCluster: bytes.WithLabelValues("to_cluster"), fromCluster: bytes.WithLabelValues("from_cluster"),
		results: results,
	}, nil
}

func (m *metrics) count(o outcome) { m.results.WithLabelValues(string(o)).Inc() }

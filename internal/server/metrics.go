package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the agent API. Their labels have few values, whatever hosts do.
type metrics struct {
	requests      *prometheus.CounterVec
	enrolments    *prometheus.CounterVec
	decisions     *prometheus.CounterVec
	refused       prometheus.Counter
	reportSeconds prometheus.Histogram
}

// newMetrics registers the metrics; polling tells how many hosts have a poll open.
func newMetrics(registerer prometheus.Registerer, polling func() float64) (*metrics, error) {
	const namespace, subsystem = "elemental", "agent_api"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total",
			Help: "Requests of agents by route and class of the answer's status.",
		}, []string{"route", "code"}),
		enrolments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "enrolments_total",
			Help: "Enrolments by result: accepted, known (repeated), refused, failed.",
		}, []string{"result"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "decisions_total",
			Help: "Security decisions by kind, as in the audit log.",
		}, []string{"decision"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "refused_connections_total",
			Help: "Connections closed before a handshake, because their source made too many.",
		}),
		reportSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "report_duration_seconds",
			Help:    "Time until a report was durable.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
	connected := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "connected_hosts",
		Help: "Hosts that wait for their plan right now.",
	}, polling)
	for _, c := range []prometheus.Collector{m.requests, m.enrolments, m.decisions, m.refused, m.reportSeconds, connected} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

package api

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of HTTP requests. Hosts can't add values of labels.
type metrics struct {
	requests      *prometheus.CounterVec
	reportSeconds prometheus.Histogram
	downloads     *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	const namespace, subsystem = "elemental", "agent_api"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total",
			Help: "Requests of agents by route and class of the answer's status.",
		}, []string{"route", "code"}),
		reportSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "report_duration_seconds",
			Help:    "Time until a report was durable.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		downloads: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "downloads",
			Help: "Downloads in progress by kind of the file: agent, bundle, or install for agents that callers without a key install.",
		}, []string{"kind"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.reportSeconds, m.downloads} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

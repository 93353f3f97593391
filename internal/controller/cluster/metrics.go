package cluster

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Results of snapshots of etcd.
const (
	snapshotTaken  = "taken"
	snapshotFailed = "failed"
)

// Metrics counts moves of endpoints and how long they take, and snapshots of etcd. Several
// goroutines may use it; nil counts nothing.
type Metrics struct {
	moves     *prometheus.CounterVec
	seconds   prometheus.Histogram
	snapshots *prometheus.CounterVec
}

// NewMetrics registers the metrics. It fails if they are registered already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "endpoint", Name: "moves_total",
			Help: "Moves of control plane endpoints that began, by cause.",
		}, []string{"cause"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "elemental", Subsystem: "endpoint", Name: "move_seconds",
			Help:    "Seconds from the record of a new endpoint until nothing that can be reached uses the former one.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800},
		}),
		snapshots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "etcd", Name: "snapshots_total",
			Help: "Scheduled snapshots of etcd that a host was asked for, by result: taken, or failed, so that another host is asked.",
		}, []string{"result"}),
	}
	// From the start, so that the first one is an increase.
	for _, cause := range []infrav1.EndpointMoveCause{
		infrav1.MoveHostDead, infrav1.MoveMachineDeleted, infrav1.MoveAddressChanged, infrav1.MoveRequested,
	} {
		m.moves.WithLabelValues(string(cause))
	}
	for _, result := range []string{snapshotTaken, snapshotFailed} {
		m.snapshots.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{m.moves, m.seconds, m.snapshots} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) moved(cause infrav1.EndpointMoveCause) {
	if m != nil {
		m.moves.WithLabelValues(string(cause)).Inc()
	}
}

func (m *Metrics) snapshot(result string) {
	if m != nil {
		m.snapshots.WithLabelValues(result).Inc()
	}
}

func (m *Metrics) completed(took time.Duration) {
	if m != nil {
		m.seconds.Observe(took.Seconds())
	}
}

package snapshotupload

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts uploads and removals. Several goroutines may use it; nil counts nothing.
type Metrics struct{ uploads *prometheus.CounterVec }

// Results of uploads.
const (
	resultUploaded = "uploaded"
	resultRemoved  = "removed"
	resultFailed   = "failed"
)

// NewMetrics registers the metrics. It fails if they are registered already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{uploads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "elemental", Subsystem: "etcd", Name: "snapshot_uploads_total",
		Help: "Snapshots of etcd at destinations, by result: uploaded, removed by retention (buckets only), or failed, so that EtcdSnapshotsUploaded has become False.",
	}, []string{"result"})}
	for _, result := range []string{resultUploaded, resultRemoved, resultFailed} {
		m.uploads.WithLabelValues(result)
	}
	if err := registerer.Register(m.uploads); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) uploaded() { m.count(resultUploaded) }
func (m *Metrics) removed()  { m.count(resultRemoved) }
func (m *Metrics) failed()   { m.count(resultFailed) }

func (m *Metrics) count(result string) {
	if m != nil {
		m.uploads.WithLabelValues(result).Inc()
	}
}

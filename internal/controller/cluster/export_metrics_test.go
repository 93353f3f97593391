package cluster

import (
	"github.com/prometheus/client_golang/prometheus"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Moves is the count of moves with that cause.
func (m *Metrics) Moves(cause infrav1.EndpointMoveCause) prometheus.Counter {
	return m.moves.WithLabelValues(string(cause))
}

// Snapshots is the count of snapshots of etcd with that result.
func (m *Metrics) Snapshots(result string) prometheus.Counter {
	return m.snapshots.WithLabelValues(result)
}

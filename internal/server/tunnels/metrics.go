package tunnels

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

const metricsNamespace, metricsSubsystem = "elemental", "tunnels"

// metrics of a table. Hosts can't add values of labels.
type metrics struct {
	dials  *prometheus.CounterVec
	opened prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "dials_total",
			Help: "Connections to hosts through their tunnels by outcome: Connected, Absent, Forbidden, Refused, Filtered, TooMany, Canceled, Failed.",
		}, []string{"outcome"}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "opened_total",
			Help: "Tunnels that hosts have opened.",
		}),
	}
}

// Register registers the table's metrics.
func (t *Table) Register(registerer prometheus.Registerer) error {
	connected := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "connected",
		Help: "Hosts that have a tunnel right now.",
	}, func() float64 { return float64(len(t.sessions())) })
	streams := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "streams",
		Help: "Connections that tunnels carry right now.",
	}, func() float64 {
		count := 0
		for _, session := range t.sessions() {
			count += session.Streams()
		}
		return float64(count)
	})
	for _, c := range []prometheus.Collector{t.metrics.dials, t.metrics.opened, connected, streams} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// outcomeOf returns the outcome of a dial for metrics.
func outcomeOf(err error) string {
	for _, outcome := range []struct {
		err  error
		name string
	}{
		{tunnel.ErrAbsent, "Absent"},
		{tunnel.ErrForbidden, "Forbidden"},
		{tunnel.ErrRefused, "Refused"},
		{tunnel.ErrFiltered, "Filtered"},
		{tunnel.ErrTooManyStreams, "TooMany"},
		{context.Canceled, "Canceled"},
	} {
		if errors.Is(err, outcome.err) {
			return outcome.name
		}
	}
	if err != nil {
		return "Failed"
	}
	return "Connected"
}

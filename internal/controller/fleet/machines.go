package fleet

import (
	"github.com/prometheus/client_golang/prometheus"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// lifeBuckets are for what may take a second or a day.
func lifeBuckets() []float64 {
	return []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400}
}

// machineMetrics observes changes of ElementalMachines.
type machineMetrics struct {
	states     *prometheus.HistogramVec
	placements *prometheus.CounterVec
}

func newMachineMetrics() *machineMetrics {
	m := &machineMetrics{
		states: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "elemental", Subsystem: "machine", Name: "state_duration_seconds",
			Help:    "Time that an ElementalMachine was in a state: the reason of its condition Ready. It is observed when the state ends, and only for states whose begin this manager saw.",
			Buckets: lifeBuckets(),
		}, []string{"state"}),
		placements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "machine", Name: "placements_total",
			Help: "Outcomes of the search for a host of an ElementalMachine, as the reason of its condition HostClaimed: HostClaimed, NoSuitableHost, NoHostInFailureDomain. The same outcome again does not count.",
		}, []string{"outcome"}),
	}
	for _, outcome := range outcomes() {
		m.placements.WithLabelValues(outcome)
	}
	return m
}

func (m *machineMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.states, m.placements}
}

// outcomes are the reasons of HostClaimed that end a search for a host.
func outcomes() []string {
	return []string{infrav1.HostClaimedReason, infrav1.NoHostReason, infrav1.NoHostInFailureDomainReason}
}

func (m *machineMetrics) observe(before, after *infrav1.ElementalMachine) {
	is := reason(after, infrav1.HostClaimedCondition)
	if reason(before, infrav1.HostClaimedCondition) == is {
		return
	}
	for _, outcome := range outcomes() {
		if is == outcome {
			m.placements.WithLabelValues(outcome).Inc()
		}
	}
}

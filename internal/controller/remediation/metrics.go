package remediation

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Metrics counts the outcomes of remediations. Several goroutines may use it.
type Metrics struct {
	outcomes *prometheus.CounterVec
}

// NewMetrics registers the metrics. It fails if they are registered already.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "elemental", Subsystem: "remediation", Name: "outcomes_total",
		Help: "Outcomes of remediations: rebooted, reboot_failed, replaced, site_dark, stood_aside.",
	}, []string{"outcome"})}
	if err := registerer.Register(m.outcomes); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

// count counts the outcome that a condition's new reason stands for. Other reasons are
// not counted.
func (m *Metrics) count(reason string) {
	switch reason {
	case infrav1.RebootedReason:
		m.outcomes.WithLabelValues("rebooted").Inc()
	case infrav1.RebootFailedReason, infrav1.RebootImpossibleReason:
		m.outcomes.WithLabelValues("reboot_failed").Inc()
	case infrav1.ReplacingReason:
		m.outcomes.WithLabelValues("replaced").Inc()
	case infrav1.SiteDarkReason:
		m.outcomes.WithLabelValues("site_dark").Inc()
	case infrav1.MaintenanceReason, infrav1.FencedReason, infrav1.IdentityClonedReason:
		m.outcomes.WithLabelValues("stood_aside").Inc()
	}
}

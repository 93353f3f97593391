package certificate

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers when the certificate of a source expires.
func RegisterMetrics(s Source, registerer prometheus.Registerer) error {
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "elemental", Subsystem: "gateway_certificate", Name: "not_after_seconds",
		Help: "When the certificate that users of the gateway see expires, in seconds since 1970; 0 if the manager issues it, which renews it in time.",
	}, func() float64 {
		if at := s.NotAfter(); !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	})
	if err := registerer.Register(expiry); err != nil {
		return fmt.Errorf("registering metrics of the gateway's certificate: %w", err)
	}
	return nil
}

package webhook

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers when the serving certificate of the webhooks expires, which is in a file
// that somebody else renews.
func RegisterMetrics(file string, registerer prometheus.Registerer) error {
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "elemental", Subsystem: "webhook_certificate", Name: "not_after_seconds",
		Help: "When the serving certificate of the webhooks expires, in seconds since 1970; 0 without one.",
	}, func() float64 { return notAfter(file) })
	if err := registerer.Register(expiry); err != nil {
		return fmt.Errorf("registering metrics of the webhooks' certificate: %w", err)
	}
	return nil
}

// notAfter returns when the first certificate in a file, that of the server, expires.
func notAfter(file string) float64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return 0
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return 0
	}
	return float64(certificate.NotAfter.Unix())
}

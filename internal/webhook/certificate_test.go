package webhook_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/webhook"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

// The metric follows the file, which is replaced while the manager runs.
func TestExpiryOfTheServingCertificate(t *testing.T) {
	g := NewWithT(t)
	file, registry := filepath.Join(t.TempDir(), "tls.crt"), prometheus.NewRegistry()
	g.Expect(webhook.RegisterMetrics(file, registry)).To(Succeed())
	value := func() float64 {
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(families).To(HaveLen(1))
		g.Expect(families[0].GetName()).To(Equal("elemental_webhook_certificate_not_after_seconds"))
		return families[0].GetMetric()[0].GetGauge().GetValue()
	}
	g.Expect(value()).To(BeZero())
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, at := range []time.Time{now, now.Add(time.Hour)} {
		authority, err := pki.NewAuthority("webhooks", at)
		g.Expect(err).NotTo(HaveOccurred())
		pair, err := authority.Server("webhook")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(file, append(pair.Certificate, authority.Certificate...), 0o600)).To(Succeed())
		g.Expect(value()).To(BeEquivalentTo(at.Add(365 * 24 * time.Hour).Unix()))
	}
	g.Expect(os.WriteFile(file, []byte("no certificate"), 0o600)).To(Succeed())
	g.Expect(value()).To(BeZero())
}

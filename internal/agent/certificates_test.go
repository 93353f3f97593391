package agent_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// hasCertificate is a condition: the API server's certificate of the last report ends at a time.
func hasCertificate(at time.Time) func(*manager) bool {
	return func(m *manager) bool {
		for _, report := range slices.Backward(m.reports) {
			if c := report.Certificates; c != nil {
				return len(c.Certificates) == 1 && c.Certificates[0].NotAfter.Equal(at)
			}
		}
		return false
	}
}

// A person renews certificates on the host. The agent sees it after the next answer to a poll, and
// reports nothing while nothing changes.
func TestReportsCertificates(t *testing.T) {
	r := newRig(t)
	end := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	var isRenewed atomic.Bool
	r.with = func(o *agent.Options) {
		o.Certificates = func() []protocol.CertificateFacts {
			c := protocol.CertificateFacts{Name: "pki/apiserver.crt", NotAfter: end}
			if isRenewed.Load() {
				c.NotAfter = end.AddDate(1, 0, 0)
			}
			return []protocol.CertificateFacts{c}
		}
	}
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	r.manager.await(t, "the certificate is reported", hasCertificate(end))
	r.manager.want(nil, protocol.Desired{Hostname: "h"})
	r.manager.await(t, "the next poll is open", taken)
	isRenewed.Store(true)
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "the new certificate is reported", hasCertificate(end.AddDate(1, 0, 0)))
	r.manager.await(t, "one report for each state", func(m *manager) bool {
		reports := 0
		for _, report := range m.reports {
			if report.Certificates != nil {
				reports++
			}
		}
		return reports == 2
	})
}

package facts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
)

func certified(role infrav1.ClaimRole) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{}
	h.Spec.Claim = &infrav1.HostClaim{ID: "a", ClusterName: "c", Phase: infrav1.ClaimBound, Role: role}
	return h
}

// Only what kubeadm writes is stored, each name once, whatever a host reports.
func TestThreat89_CertificatesAreBounded(t *testing.T) {
	g := NewWithT(t)
	at := time.Date(2027, 3, 4, 5, 6, 7, 8, time.UTC)
	report := &protocol.Report{Certificates: &protocol.CertificateReport{Certificates: []protocol.CertificateFacts{
		{Name: "pki/apiserver.crt", NotAfter: at}, {Name: "admin.conf", NotAfter: at.AddDate(9000, 0, 0)}, {Name: "pki/ca.crt"},
		{Name: "pki/apiserver.crt", NotAfter: at.Add(time.Hour)}, {Name: "../../etc/shadow", NotAfter: at}, {Name: strings.Repeat("x", 1<<10), NotAfter: at},
	}}}
	for i := range 1000 {
		report.Certificates.Certificates = append(report.Certificates.Certificates, protocol.CertificateFacts{Name: fmt.Sprint(i), NotAfter: at})
	}
	h := certified(infrav1.RoleControlPlane)
	facts.SetReported(h, report, time.Now())
	g.Expect(h.Status.Certificates).To(Equal([]infrav1.HostCertificate{
		{Name: "pki/apiserver.crt", NotAfter: metav1.NewTime(at.Truncate(time.Second).Add(time.Hour))},
	}))
	// The list is always complete.
	facts.SetReported(h, &protocol.Report{Certificates: &protocol.CertificateReport{}}, time.Now())
	g.Expect(h.Status.Certificates).To(BeEmpty())
	worker := certified(infrav1.RoleWorker)
	facts.SetReported(worker, report, time.Now())
	g.Expect(worker.Status.Certificates).To(BeEmpty())
}

// A host can report all that kubeadm writes.
func TestCertificatesOfKubeadm(t *testing.T) {
	g := NewWithT(t)
	report := &protocol.Report{Certificates: &protocol.CertificateReport{}}
	for _, name := range protocol.CertificateNames() {
		report.Certificates.Certificates = append(report.Certificates.Certificates, protocol.CertificateFacts{Name: name, NotAfter: time.Now()})
	}
	h := certified(infrav1.RoleControlPlane)
	facts.SetReported(h, report, time.Now())
	g.Expect(h.Status.Certificates).To(HaveLen(len(protocol.CertificateNames())))
}

package certificates_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// A control plane of one host renews its certificates before they end, and Cluster API learns of it.
func TestRenewalOfOneHost(t *testing.T) {
	f := newFixture(t)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(12 * time.Hour))
	f.condition(yes, infrav1.CertificatesValidReason)
	f.Expect(f.host.Spec.CertificateRenewal).To(BeNil())
	f.step(30*day + time.Hour)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(time.Hour), "it begins in time")
	f.Client.Forget()
	f.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "nothing has changed")

	f.step(30 * day)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.CertificatesRenewingReason)).To(ContainSubstring("Host a renews"))
	request := f.host.Spec.CertificateRenewal
	f.Expect(request.ID).To(HavePrefix("id-a."))
	f.renewal(infrav1.OperationRunning, f.end)
	f.reconcile()
	f.condition(no, infrav1.CertificatesRenewingReason)

	renewed := f.end.Add(365 * day)
	f.renewal(infrav1.OperationSucceeded, renewed)
	f.reconcile()
	f.condition(yes, infrav1.CertificatesValidReason)
	f.Expect(f.host.Spec.CertificateRenewal).To(Equal(request))
	f.Expect(f.owner.Annotations).To(HaveKeyWithValue(clusterv1.MachineCertificatesExpiryDateAnnotation, renewed.UTC().Format(time.RFC3339)))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("CertificatesRenewing"), ContainSubstring("No certificate of the cluster ends soon")))

	// A year later it begins anew.
	f.Clock.SetTime(renewed.Add(-29 * day))
	f.reconcile()
	f.Expect(f.host.Spec.CertificateRenewal.ID).NotTo(Equal(request.ID))
}

// A renewal that fails is tried again after a day, not earlier. A person may ask for it at once.
func TestRenewalFails(t *testing.T) {
	f := newFixture(t)
	f.step(30 * day)
	f.reconcile()
	first := f.host.Spec.CertificateRenewal.ID
	f.renewal(infrav1.OperationFailed, f.end)
	f.Clock.Step(time.Hour)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(12 * time.Hour))
	message := f.condition(no, infrav1.CertificateRenewalFailedReason)
	f.Expect(message).To(And(ContainSubstring("Step gate: rolled back"), HaveSuffix("…")))
	f.Expect(len(message)).To(BeNumerically("<", 1024))
	f.Expect(f.host.Spec.CertificateRenewal.ID).To(Equal(first))
	f.Clock.Step(23 * time.Hour)
	f.reconcile()
	second := f.host.Spec.CertificateRenewal.ID
	f.Expect(second).NotTo(Equal(first))
	f.renewal(infrav1.OperationFailed, f.end)
	f.reconcile()
	f.condition(no, infrav1.CertificateRenewalFailedReason)
	controllertest.Change(f.Fixture, f.host, func(h *infrav1.ElementalHost) {
		h.Spec.CertificateRenewal = &infrav1.HostCertificateRenewal{ID: "by-hand-1"}
	})
	f.reconcile()
	f.condition(no, infrav1.CertificatesRenewingReason)
	f.Expect(f.host.Spec.CertificateRenewal.ID).To(Equal("by-hand-1"))
}

// A host that lies about its certificates makes the manager ask for one renewal a day at most, of
// itself and of nobody else.
func TestThreat89_LiesAreBounded(t *testing.T) {
	f := newFixture(t)
	worker := f.Host("w", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id-w", ClusterName: "c", MachineName: "w", Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
	})
	requests := map[string]bool{}
	for range 3 * 6 {
		f.Report(f.host, func(s *infrav1.ElementalHostStatus) { s.Certificates = f.certificates(f.Clock.Now().Add(-time.Hour)) })
		f.reconcile()
		requests[f.host.Spec.CertificateRenewal.ID] = true
		f.renewal(infrav1.OperationSucceeded, f.Clock.Now().Add(-time.Hour))
		f.Clock.Step(4 * time.Hour)
	}
	f.Expect(requests).To(HaveLen(3), "in three days")
	f.Refresh(worker)
	f.Expect(worker.Spec.CertificateRenewal).To(BeNil())

	// In a control plane of several hosts nothing follows from it but a warning.
	other := f.controlPlane("b", infrav1.RoleControlPlane)
	last := f.host.Spec.CertificateRenewal.ID
	f.Clock.Step(2 * day)
	f.Report(f.host, func(s *infrav1.ElementalHostStatus) { s.Certificates = f.certificates(f.Clock.Now().Add(time.Hour)) })
	f.reconcile()
	f.Refresh(other)
	f.Expect(f.host.Spec.CertificateRenewal.ID).To(Equal(last))
	f.Expect(other.Spec.CertificateRenewal).To(BeNil())
}

// While something else goes on, the renewal waits, and the condition says for what.
func TestRenewalWaits(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(f *fixture)
		message string
	}{
		"maintenance": {func(f *fixture) {
			controllertest.Change(f.Fixture, f.host, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} })
		}, "in maintenance"},
		"disconnected": {func(f *fixture) { f.SetConnection(f.host, infrav1.ConnectionDisconnected) }, "not connected"},
		"a paused host": {func(f *fixture) {
			controllertest.Change(f.Fixture, f.host, func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}, "paused"},
		"an old agent": {func(f *fixture) {
			f.Report(f.host, func(s *infrav1.ElementalHostStatus) { s.Agent.Capabilities = []string{"Bootstrap"} })
		}, "too old"},
		"an upgrade": {func(f *fixture) {
			controllertest.Change(f.Fixture, f.owner, func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
			})
		}, "an upgrade"},
		"a Machine that goes": {func(f *fixture) {
			controllertest.Change(f.Fixture, f.owner, func(m *clusterv1.Machine) { m.Finalizers = []string{"test/keep"} })
			f.Delete(f.owner)
		}, "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.step(20 * day)
			test.change(f)
			f.reconcile()
			f.Expect(f.condition(no, infrav1.CertificateRenewalWaitingReason)).To(ContainSubstring(test.message))
			f.Expect(f.host.Spec.CertificateRenewal).To(BeNil())
		})
	}
}

// Several hosts are left to their control plane provider, and so is a cluster that wants no renewal.
// The condition says what ends.
func TestNoRenewal(t *testing.T) {
	f := newFixture(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Certificates.Renewal = infrav1.CertificateRenewalOff })
	f.step(20 * day)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.CertificatesExpiringReason)).To(ContainSubstring("Host a: The certificate pki/apiserver.crt"))
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.Certificates = infrav1.CertificatePolicy{RenewBeforeDays: 10}
	})
	f.reconcile()
	f.condition(no, infrav1.CertificatesExpiringReason)
	f.Expect(f.host.Spec.CertificateRenewal).To(BeNil())
	f.step(10 * day)
	f.reconcile()
	f.condition(no, infrav1.CertificatesRenewingReason)
}

// A paused cluster is left as it is.
func TestPaused(t *testing.T) {
	f := newFixture(t)
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.step(20 * day)
	f.reconcile()
	f.Expect(f.infra.Status.Conditions).To(BeEmpty())
	f.Expect(f.host.Spec.CertificateRenewal).To(BeNil())
}

func TestKubeconfig(t *testing.T) {
	f := newFixture(t)
	end := f.Clock.Now().Add(60 * day).Truncate(time.Second)
	f.kubeconfig(end)
	f.reconcile()
	f.condition(yes, infrav1.CertificatesValidReason)
	at := f.infra.Status.KubeconfigNotAfter
	f.Expect(at.Time).To(BeTemporally("==", end))
	f.Clock.Step(31 * day)
	f.reconcile()
	f.Expect(f.condition(no, infrav1.KubeconfigExpiringReason)).To(ContainSubstring("kubeconfig"))
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("KubeconfigExpiring")))
}

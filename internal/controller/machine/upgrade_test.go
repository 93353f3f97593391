package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

// A Machine is not remediated from the moment at which it is marked until its host has
// finished, also if the upgrade failed: a remediation would wipe the host.
func TestUpgradeSuspendsRemediation(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	mark := func() string {
		f.reconcile(machine)
		f.Refresh(owner)
		return owner.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	}
	report := func(state infrav1.OperationState) {
		f.Report(host, func(s *infrav1.ElementalHostStatus) {
			controllertest.SetOperation(s, infrav1.HostOperation{Type: infrav1.OperationNodeUpgrade, ID: host.Spec.NodeUpgrade.ID, State: state})
		})
	}
	f.Expect(mark()).To(BeEmpty())
	controllertest.Change(f.Fixture, owner, func(o *clusterv1.Machine) {
		o.Spec.Version, o.Annotations = "v1.36.3", map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	})
	f.Expect(mark()).To(Equal("elemental-upgrade"))
	f.Client.Forget()
	f.reconcile(machine)
	f.Expect(f.Client.Writes()).To(BeEmpty())

	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) {
		h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: inplace.NewRequestID(h.Spec.Claim), Role: infrav1.UpgradeWorker, Bundle: infrav1.HostBundle{
			Version: "v1.36.3", SHA256: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", SizeBytes: 1, Sources: []string{"manager"},
		}}
	})
	controllertest.ChangeStatus(f.Fixture, owner, func(o *clusterv1.Machine) {
		o.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"}
	})
	report(infrav1.OperationFailed)
	controllertest.Change(f.Fixture, owner, func(o *clusterv1.Machine) { delete(o.Annotations, clusterv1.UpdateInProgressAnnotation) })
	f.Expect(mark()).To(Equal("elemental-upgrade"), "the upgrade was aborted after a failure")
	controllertest.Change(f.Fixture, host, maintenance)
	f.Expect(mark()).To(Equal("elemental-maintenance"))
	controllertest.Change(f.Fixture, host, atWork)
	f.Expect(mark()).To(Equal("elemental-upgrade"))
	report(infrav1.OperationSucceeded)
	f.Expect(mark()).To(BeEmpty())

	t.Log("Another image counts like another version")
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.Spec.OSImage = "oci:os:2" })
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) {
		h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: inplace.NewRequestID(h.Spec.Claim), Role: infrav1.UpgradeWorker, OSImage: "oci:os:2"}
	})
	report(infrav1.OperationRunning)
	f.Expect(mark()).To(Equal("elemental-upgrade"))
	report(infrav1.OperationFailed)
	f.Expect(mark()).To(Equal("elemental-upgrade"))
	report(infrav1.OperationSucceeded)
	f.Expect(mark()).To(BeEmpty())

	t.Log("A release withdraws the request, so that no later claim inherits it")
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(host.Spec.Claim.Phase).To(Equal(infrav1.ClaimReleasing))
	f.Expect(host.Spec.NodeUpgrade).To(BeNil())
}

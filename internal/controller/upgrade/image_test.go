package upgrade_test

import (
	"testing"

	. "github.com/onsi/gomega"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

const (
	formerImage infrav1.OSImage = "oci:registry.example.com/os:1"
	wantedImage infrav1.OSImage = "oci:registry.example.com/os:2"
)

// onElemental makes the host one with Elemental OS.
func (n *node) onElemental() {
	n.T.Helper()
	n.Report(n.host, func(s *infrav1.ElementalHostStatus) {
		s.Inventory.OS.Image = string(formerImage)
		s.Agent.Capabilities = []string{"Upgrade", "NodeImage"}
	})
}

// askForImage marks the Machine and asks for its update to the wanted image, as Cluster API does.
func (n *node) askForImage() {
	n.T.Helper()
	n.ask()
	controllertest.Change(n.Fixture, n.owner, func(o *clusterv1.Machine) { o.Spec.Version = former })
	controllertest.Change(n.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Spec.OSImage = wantedImage })
}

// A host boots the image that its Machine asks for. It needs no release of Kubernetes, and workers
// don't wait for it.
func TestUpgradeToAnImage(t *testing.T) {
	f := newFixture(t)
	first, worker := f.node("cp1", controllertest.ControlPlane), f.node("w1")
	first.onElemental()
	worker.onElemental()
	first.askForImage()
	f.Expect(first.expect(no, infrav1.UpgradingReason)).To(Equal("Host cp1 is to upgrade to the image oci:registry.example.com/os:2"))
	up := first.host.Spec.NodeUpgrade
	f.Expect([]any{up.OSImage, up.Role, up.Bundle.Version, *up.DrainTimeoutSeconds}).To(
		Equal([]any{wantedImage, infrav1.UpgradeFirstControlPlane, "", int32(600)}))
	f.Expect(first.host.Spec.Bundle).To(BeNil())
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Requested the upgrade of host cp1 to the image oci:registry.example.com/os:2")))
	f.Client.Forget()
	first.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "a request is made once")

	worker.askForImage()
	worker.expect(no, infrav1.UpgradingReason)
	f.Expect(worker.host.Spec.NodeUpgrade.Role).To(Equal(infrav1.UpgradeWorker))

	first.report(infrav1.OperationRunning, "reboot", "")
	f.Report(first.host, func(s *infrav1.ElementalHostStatus) { s.Inventory.OS.Image = string(wantedImage) })
	f.Expect(first.expect(no, infrav1.UpgradingReason)).To(Equal("Host cp1 upgrades to the image oci:registry.example.com/os:2 at step reboot"))
	first.report(infrav1.OperationSucceeded, "", "")
	f.Expect(first.expect(yes, infrav1.KubernetesUpToDateReason)).To(Equal("Kubernetes v1.35.4 and the image oci:registry.example.com/os:2"))
	first.end()
	first.expect(yes, infrav1.KubernetesUpToDateReason)
}

// The only Node is not drained. A fallback is named, and another attempt is another request.
func TestImageRolledBack(t *testing.T) {
	f := newFixture(t)
	n := f.node("h1", controllertest.ControlPlane)
	n.onElemental()
	n.askForImage()
	n.reconcile()
	f.Expect(n.host.Spec.NodeUpgrade.DrainTimeoutSeconds).To(BeNil())
	id := n.host.Spec.NodeUpgrade.ID
	n.report(infrav1.OperationFailed, "reboot", "rolled back: the Node serves with v1.35.4; reboot: it did not boot")
	f.Expect(n.expect(no, infrav1.UpgradeRolledBackReason)).To(ContainSubstring("The upgrade of host h1 to the image oci:registry.example.com/os:2 failed at step reboot: rolled back"))
	controllertest.Change(f.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Annotations[infrav1.RetryUpgradeAnnotation] = "" })
	n.expect(no, infrav1.UpgradingReason)
	f.Expect(n.host.Spec.NodeUpgrade.ID).NotTo(Equal(id))
	f.Expect(n.host.Spec.NodeUpgrade.OSImage).To(Equal(wantedImage))

	t.Log("A request that nobody asks for any more is withdrawn, and the host's own word says what it has")
	n.end()
	f.Expect(n.expect(no, infrav1.UpgradeFailedReason)).To(Equal(
		"Host h1 has the image oci:registry.example.com/os:1, and Cluster API does not ask for an upgrade to the image oci:registry.example.com/os:2"))
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())
	controllertest.Change(f.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Spec.OSImage = formerImage })
	n.expect(yes, infrav1.KubernetesUpToDateReason)
}

func TestWhatAnImageWaitsFor(t *testing.T) {
	f := newFixture(t)
	n := f.node("h1", controllertest.ControlPlane)
	n.askForImage()
	f.Expect(n.expect(no, infrav1.UpgradeNotPossibleReason)).To(ContainSubstring("host h1 does not run Elemental OS"))
	n.onElemental()
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Labels = map[string]string{infrav1.HoldUpgradeLabel: ""} })
	f.Expect(n.expect(no, infrav1.UpgradeHeldReason)).To(ContainSubstring("Host h1 is to upgrade to the image oci:registry.example.com/os:2, and the label"))
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Labels = nil })
	controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} })
	n.expect(no, infrav1.UpgradeHostInMaintenanceReason)
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())

	t.Log("A host that has the image already boots nothing")
	controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = nil })
	f.Report(n.host, func(s *infrav1.ElementalHostStatus) { s.Inventory.OS.Image = "oci://registry.example.com/os:2" })
	n.expect(yes, infrav1.KubernetesUpToDateReason)
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())

	t.Log("Another version of Kubernetes is in another image")
	f.release()
	n.ask()
	f.Expect(n.expect(no, infrav1.UpgradeNotPossibleReason)).To(ContainSubstring("has the programs of Kubernetes in its image"))
}

// rotate gives the control plane a template with the image and the version that it has.
func (s *single) rotate(image infrav1.OSImage) {
	s.T.Helper()
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: s.Meta("rotated")}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{OSImage: image}
	s.Create(template)
	controllertest.Change(s.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) {
		k.Spec.Version, k.Spec.MachineTemplate.Spec.InfrastructureRef.Name = former, "rotated"
	})
	s.healthy(yes, yes)
}

// The only Machine of a control plane is marked for another image as for another version.
func TestTheOnlyMachineIsMarkedForAnImage(t *testing.T) {
	s := newSingle(t)
	s.onElemental()
	s.rotate(wantedImage)
	s.Expect(s.surge()).To(ContainSubstring("Required: Machines are not replaced"))
	s.mode(infrav1.InPlacePreferred)
	s.Expect(s.surge()).To(Equal("ElementalMachine h1 is upgraded to the image oci:registry.example.com/os:2 in place"))
	s.expect(no, infrav1.UpgradeWaitingForClusterAPIReason)
	s.Expect(s.isMarked()).To(BeTrue())
	s.Expect(s.Events()).To(ContainElement(ContainSubstring("Marked Machine h1 for an update in place to the image oci:registry.example.com/os:2")))
	s.Expect(s.host.Spec.Bundle).To(BeNil(), "there is no bundle to fetch")
	s.askForImage()
	s.expect(no, infrav1.UpgradingReason)
	s.Expect(s.host.Spec.NodeUpgrade.OSImage).To(Equal(wantedImage))
}

// A control plane whose only host has another operating system is not marked.
func TestTheOnlyMachineOfAnotherOperatingSystem(t *testing.T) {
	s := newSingle(t)
	s.rotate(wantedImage)
	s.Expect(s.expect(no, infrav1.UpgradeNotPossibleReason)).To(ContainSubstring("host h1 does not run Elemental OS"))
	s.Expect(s.isMarked()).To(BeFalse())
}

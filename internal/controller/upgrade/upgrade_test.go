package upgrade_test

import (
	"testing"

	. "github.com/onsi/gomega"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func TestNothingIsWrittenWithoutAnUpgrade(t *testing.T) {
	f := newFixture(t)
	f.release()
	n := f.node("h1", controllertest.ControlPlane)
	f.Client.Forget()
	n.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.Expect(n.condition()).To(BeNil())
}

// The control plane is upgraded first, one host with the role First, then the worker.
func TestUpgradeOfACluster(t *testing.T) {
	f := newFixture(t)
	f.release()
	first, second, worker := f.node("cp1", controllertest.ControlPlane), f.node("cp2", controllertest.ControlPlane), f.node("w1")

	first.ask()
	f.Expect(first.expect(no, infrav1.UpgradingReason)).To(Equal("Host cp1 is to upgrade to Kubernetes v1.36.3"))
	up := first.host.Spec.NodeUpgrade
	f.Expect([]any{up.Role, up.Bundle.SHA256, *up.DrainTimeoutSeconds, up.Bundle.Sources}).To(
		Equal([]any{infrav1.UpgradeFirstControlPlane, digest, int32(600), []string{"manager"}}))
	f.Expect(first.host.Spec.Bundle.SHA256).To(Equal(digest))
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Requested the upgrade of host cp1 to Kubernetes v1.36.3")))
	f.Client.Forget()
	first.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty(), "a request is made once")

	t.Log("The worker waits, also while the control plane has the version and is not done")
	worker.ask()
	f.Expect(worker.expect(no, infrav1.UpgradeWaitingForControlPlane)).To(Equal("Waiting until Machine cp1 has Kubernetes v1.36.3"))
	f.Expect(worker.host.Spec.NodeUpgrade).To(BeNil())
	first.report(infrav1.OperationRunning, "kubeadm", "")
	f.Expect(first.expect(no, infrav1.UpgradingReason)).To(Equal("Host cp1 upgrades to Kubernetes v1.36.3 at step kubeadm"))
	first.version(wanted)
	worker.expect(no, infrav1.UpgradeWaitingForControlPlane)
	first.report(infrav1.OperationSucceeded, "", "")
	f.Expect(first.expect(yes, infrav1.KubernetesUpToDateReason)).To(Equal("Kubernetes v1.36.3"))
	f.Expect(first.host.Spec.Bundle).To(BeNil(), "the bundle is installed")
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Normal UpToDate Host cp1 has Kubernetes v1.36.3")))
	first.end()
	first.expect(yes, infrav1.KubernetesUpToDateReason)

	second.ask()
	second.expect(no, infrav1.UpgradingReason)
	f.Expect(second.host.Spec.NodeUpgrade.Role).To(Equal(infrav1.UpgradeControlPlane))
	second.report(infrav1.OperationSucceeded, "", "")
	second.version(wanted)
	second.end()
	second.expect(yes, infrav1.KubernetesUpToDateReason)

	worker.expect(no, infrav1.UpgradingReason)
	f.Expect(worker.host.Spec.NodeUpgrade.Role).To(Equal(infrav1.UpgradeWorker))
}

// The only Node is not drained, and neither is any for a patch release.
func TestDrain(t *testing.T) {
	f := newFixture(t)
	f.release()
	only := f.node("h1", controllertest.ControlPlane, func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(60))
	})
	only.ask()
	only.reconcile()
	f.Expect(only.host.Spec.NodeUpgrade.DrainTimeoutSeconds).To(BeNil())

	patch := f.node("h2", controllertest.ControlPlane)
	patch.version("v1.36.1")
	patch.ask()
	patch.reconcile()
	f.Expect(patch.host.Spec.NodeUpgrade.DrainTimeoutSeconds).To(BeNil())

	own := f.node("h3", controllertest.ControlPlane, func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(60))
	})
	own.ask()
	own.reconcile()
	f.Expect(*own.host.Spec.NodeUpgrade.DrainTimeoutSeconds).To(Equal(int32(60)))
}

// A host is upgraded once it can be, and the condition says what it waits for.
// kubeadm runs on the host as the KubeadmConfig says.
func TestSettingsOfKubeadm(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*bootstrapv1.KubeadmConfigSpec)
		ignored []string
		patches string
	}{
		"none": {change: func(*bootstrapv1.KubeadmConfigSpec) {}},
		"of kubeadm init": {func(s *bootstrapv1.KubeadmConfigSpec) {
			s.InitConfiguration.NodeRegistration.IgnorePreflightErrors = []string{"NumCPU"}
			s.InitConfiguration.Patches.Directory = "/etc/kubernetes/patches"
		}, []string{"NumCPU"}, "/etc/kubernetes/patches"},
		"of kubeadm join first": {func(s *bootstrapv1.KubeadmConfigSpec) {
			s.InitConfiguration.NodeRegistration.IgnorePreflightErrors = []string{"NumCPU"}
			s.InitConfiguration.Patches.Directory = "/etc/kubernetes/patches"
			s.JoinConfiguration.NodeRegistration.IgnorePreflightErrors = []string{"Swap"}
			s.JoinConfiguration.Patches.Directory = "/opt/patches.d/v1"
		}, []string{"Swap"}, "/opt/patches.d/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.release()
			config := &bootstrapv1.KubeadmConfig{ObjectMeta: f.Meta("h1")}
			tc.change(&config.Spec)
			f.Create(config)
			n := f.node("h1", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
				o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: "h1"}
			})
			n.ask()
			n.expect(no, infrav1.UpgradingReason)
			f.Expect(n.host.Spec.NodeUpgrade.IgnorePreflightErrors).To(Equal(tc.ignored))
			f.Expect(n.host.Spec.NodeUpgrade.PatchesDirectory).To(Equal(tc.patches))
		})
	}
}

func TestWhatAnUpgradeWaitsFor(t *testing.T) {
	f := newFixture(t)
	n := f.node("h1", controllertest.ControlPlane)
	n.ask()
	f.Expect(n.expect(no, infrav1.UpgradeWaitingForReleaseReason)).To(ContainSubstring("There is no ElementalKubernetesRelease v1.36.3"))
	f.release()
	f.Report(n.host, func(s *infrav1.ElementalHostStatus) { s.Inventory.Architecture = "arm64" })
	f.Expect(n.expect(no, infrav1.UpgradeWaitingForReleaseReason)).To(ContainSubstring("no bundle for the architecture of host h1"))
	f.Report(n.host, func(s *infrav1.ElementalHostStatus) { s.Inventory.Architecture, s.Agent.Capabilities = "amd64", nil })
	f.Expect(n.expect(no, infrav1.UpgradeNotPossibleReason)).To(ContainSubstring("the agent of host h1 can't upgrade Kubernetes"))
	f.Report(n.host, func(s *infrav1.ElementalHostStatus) { s.Agent.Capabilities = []string{"NodeUpgrade"} })
	controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} })
	n.expect(no, infrav1.UpgradeHostInMaintenanceReason)
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())
	controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Maintenance = nil })
	f.SetConnection(n.host, infrav1.ConnectionDisconnected)
	f.Expect(n.expect(no, infrav1.UpgradeHostNotConnectedReason)).To(Equal("The upgrade waits until host h1 is connected"))
	f.Expect(n.host.Spec.NodeUpgrade).NotTo(BeNil(), "a host that returns finds its request")
	f.SetConnection(n.host, infrav1.ConnectionConnected)
	controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	n.expect(no, clusterv1.PausedReason)
	controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Annotations = nil })
	f.Report(n.host, func(s *infrav1.ElementalHostStatus) {
		s.Bundle = &infrav1.HostBundleStatus{SHA256: digest, Version: wanted, State: infrav1.BundleFailed, Message: "404"}
	})
	f.Expect(n.expect(no, infrav1.UpgradeStagingReason)).To(Equal("Host h1 could not fetch the bundle of Kubernetes v1.36.3, and tries again: 404"))
	n.report(infrav1.OperationRunning, "drain", "3 Pods left")
	f.Expect(n.expect(no, infrav1.UpgradingReason)).To(Equal("Host h1 upgrades to Kubernetes v1.36.3 at step drain: 3 Pods left"))
	f.SetConnection(n.host, infrav1.ConnectionDisconnected)
	f.Expect(n.expect(no, infrav1.UpgradeHostNotConnectedReason)).To(ContainSubstring("it was upgrading to Kubernetes v1.36.3 at step drain"))
}

func TestRetry(t *testing.T) {
	f := newFixture(t)
	f.release()
	n := f.node("h1", controllertest.ControlPlane)
	n.ask()
	n.reconcile()
	id := n.host.Spec.NodeUpgrade.ID
	f.Events()
	n.report(infrav1.OperationFailed, "kubelet", "rolled back: the kubelet did not start")
	f.Expect(n.expect(no, infrav1.UpgradeRolledBackReason)).To(Equal("The upgrade of host h1 to Kubernetes v1.36.3 failed at step kubelet: " +
		"rolled back: the kubelet did not start. To try again, set the annotation infrastructure.cluster.x-k8s.io/retry-upgrade here"))
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Warning RolledBack")))
	retry := func() {
		controllertest.Change(f.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Annotations[infrav1.RetryUpgradeAnnotation] = "" })
	}
	retry()
	n.expect(no, infrav1.UpgradingReason)
	f.Expect(n.host.Spec.NodeUpgrade.ID).NotTo(Equal(id))
	f.Expect(n.machine.Annotations).NotTo(HaveKey(infrav1.RetryUpgradeAnnotation))

	t.Log("A running upgrade is not repeated")
	id = n.host.Spec.NodeUpgrade.ID
	n.report(infrav1.OperationRunning, "kubeadm", "")
	retry()
	n.expect(no, infrav1.UpgradingReason)
	f.Expect(n.host.Spec.NodeUpgrade.ID).To(Equal(id))
	f.Expect(n.machine.Annotations).NotTo(HaveKey(infrav1.RetryUpgradeAnnotation))
	n.report(infrav1.OperationFailed, "gate", "partly upgraded: etcd")
	n.expect(no, infrav1.UpgradeFailedReason)

	t.Log("Another version is another request")
	f.Create(&infrav1.ElementalKubernetesRelease{ObjectMeta: f.Meta("v1.36.4"), Spec: infrav1.ElementalKubernetesReleaseSpec{
		Version: "v1.36.4", Bundles: []infrav1.KubernetesBundle{{Architecture: "amd64", SHA256: digest, SizeBytes: 1}},
	}})
	controllertest.Change(f.Fixture, n.owner, func(o *clusterv1.Machine) { o.Spec.Version = "v1.36.4" })
	n.expect(no, infrav1.UpgradingReason)
	f.Expect(n.host.Spec.NodeUpgrade.Bundle.Version).To(Equal("v1.36.4"))
	f.Expect(n.host.Spec.NodeUpgrade.ID).NotTo(Equal(id))
}

// A request that Cluster API no longer asks for is withdrawn, unless the host has begun.
func TestAbort(t *testing.T) {
	f := newFixture(t)
	f.release()
	n := f.node("h1", controllertest.ControlPlane)
	n.ask()
	n.reconcile()
	n.end()
	f.Expect(n.expect(no, infrav1.UpgradeFailedReason)).To(
		Equal("The Node of host h1 has Kubernetes v1.35.4, and Cluster API does not ask for an upgrade to Kubernetes v1.36.3"))
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())

	t.Log("A host that fetches the bundle has changed nothing")
	n.ask()
	n.reconcile()
	n.report(infrav1.OperationRunning, "stage", "")
	n.end()
	n.reconcile()
	f.Expect(n.host.Spec.NodeUpgrade).To(BeNil())

	n.ask()
	n.reconcile()
	n.report(infrav1.OperationRunning, "kubeadm", "")
	n.end()
	n.expect(no, infrav1.UpgradingReason)
	f.Expect(n.host.Spec.NodeUpgrade).NotTo(BeNil())
	n.report(infrav1.OperationSucceeded, "", "")
	n.version(wanted)
	n.expect(yes, infrav1.KubernetesUpToDateReason)
}

// While a Machine or cluster is paused or leaves, nothing begins.
func TestPausedAndLeavingMachines(t *testing.T) {
	f := newFixture(t)
	f.release()
	for name, change := range map[string]func(n *node){
		"paused": func(n *node) {
			controllertest.Change(f.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Annotations[clusterv1.PausedAnnotation] = "" })
		},
		"deleted": func(n *node) {
			controllertest.Change(f.Fixture, n.owner, func(o *clusterv1.Machine) { o.Finalizers = []string{"example.com/hold"} })
			f.Delete(n.owner)
		},
		"fenced": func(n *node) {
			controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
		},
		"released": func(n *node) {
			controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
		},
		"claimed": func(n *node) {
			controllertest.Change(f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "another" })
		},
	} {
		n := f.node(name, controllertest.ControlPlane)
		n.ask()
		change(n)
		f.Client.Forget()
		n.reconcile()
		f.Expect(f.Client.Writes()).To(BeEmpty(), name)
	}
}

// While etcd is restored, no upgrade begins. It begins when the Cluster goes on.
func TestThreat90_NoUpgradeDuringARestore(t *testing.T) {
	f := newFixture(t)
	f.release()
	n := f.node("n", controllertest.ControlPlane)
	n.ask()
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	f.Refresh(cluster)
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) {
		c.Spec.Paused = new(true)
		c.Annotations = map[string]string{infrav1.RestoreAnnotation: "r"}
	})
	f.Client.Forget()
	n.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty())
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) {
		c.Spec.Paused = nil
		delete(c.Annotations, infrav1.RestoreAnnotation)
	})
	n.reconcile()
	f.Expect(f.Client.Writes()).NotTo(BeEmpty())
}

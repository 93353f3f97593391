package upgrade_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/controlplane"
)

const hostName = "{{ ds.meta_data.local_hostname }}"

// single is a cluster whose control plane of one Machine is to have the wanted version.
type single struct {
	*node

	kcp *controlplanev1.KubeadmControlPlane
}

func newSingle(t *testing.T) *single {
	t.Helper()
	f := newFixture(t)
	f.release()
	s := &single{}
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: "cp"}
	})
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: f.Meta("t")}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{}
	f.Create(template)
	s.kcp = &controlplanev1.KubeadmControlPlane{ObjectMeta: f.Meta("cp")}
	s.kcp.Spec.Version, s.kcp.Spec.Replicas = wanted, new(int32(1))
	s.kcp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: "t",
	}
	s.kcp.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration.Name = hostName
	s.kcp.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.Name = hostName
	f.Create(s.kcp)
	// The first Machine, as the bootstrap provider leaves its configuration.
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: f.Meta("h1")}
	config.Spec.ClusterConfiguration.ControlPlaneEndpoint = "10.0.0.1:6443"
	config.Spec.ClusterConfiguration.FeatureGates = map[string]bool{"ControlPlaneKubeletLocalMode": true}
	config.Spec.InitConfiguration.NodeRegistration.Name = hostName
	config.Spec.InitConfiguration.NodeRegistration.IgnorePreflightErrors = nil
	f.Create(config)
	s.node = f.node("h1", controllertest.ControlPlane, func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: "h1"}
		o.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.MachineUpToDateCondition, Status: no, Reason: "NotUpToDate", LastTransitionTime: metav1.Now(),
		}}
	})
	return s
}

// healthy sets what KubeadmControlPlane reports of its etcd and its control plane.
func (s *single) healthy(etcd, components metav1.ConditionStatus) {
	s.T.Helper()
	condition := func(name string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: "Test", LastTransitionTime: metav1.Now(), ObservedGeneration: s.kcp.Generation}
	}
	controllertest.ChangeStatus(s.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) {
		k.Status.Conditions = []metav1.Condition{
			condition(controlplanev1.KubeadmControlPlaneRollingOutCondition, yes),
			condition(controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, etcd),
			condition(controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, components),
		}
	})
}

func (s *single) isMarked() bool {
	s.Refresh(s.owner)
	_, marked := s.owner.Annotations[clusterv1.UpdateInProgressAnnotation]
	return marked
}

// surge returns why another Machine of the control plane must not be created.
func (s *single) surge() string {
	s.T.Helper()
	m := &infrav1.ElementalMachine{ObjectMeta: s.Meta("surge")}
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}
	refusal, err := controlplane.Reader{Client: s.Client, APIReader: s.Admin}.RefuseSurge(s.Ctx, m)
	s.Expect(err).NotTo(HaveOccurred())
	return refusal
}

func (s *single) mode(mode infrav1.InPlaceMode) {
	s.T.Helper()
	controllertest.Change(s.Fixture, &infrav1.ElementalCluster{ObjectMeta: s.Meta("c")}, func(c *infrav1.ElementalCluster) { c.Spec.InPlace.Mode = mode })
}

// The only Machine is marked once its control plane is healthy; its host fetches the bundle
// before.
func TestTheOnlyMachineIsMarked(t *testing.T) {
	s := newSingle(t)
	f := s.fixture
	f.Expect(s.expect(no, infrav1.UpgradeWaitingForControlPlane)).To(ContainSubstring("Cluster API has not seen the change"))
	f.Expect(s.host.Spec.Bundle.SHA256).To(Equal(digest))
	s.healthy(yes, metav1.ConditionUnknown)
	f.Expect(s.expect(no, infrav1.UpgradeWaitingForControlPlane)).To(ContainSubstring("ControlPlaneComponentsHealthy of the KubeadmControlPlane is not True"))
	s.healthy(no, yes)
	f.Expect(s.expect(no, infrav1.UpgradeWaitingForControlPlane)).To(ContainSubstring("EtcdClusterHealthy"))
	f.Expect(s.reconcile().RequeueAfter).To(Equal(10 * time.Second))
	s.healthy(yes, yes)
	f.SetConnection(s.host, infrav1.ConnectionDisconnected)
	f.Expect(s.expect(no, infrav1.UpgradeWaitingForControlPlane)).To(ContainSubstring("host h1 is not connected"))
	f.Expect(s.isMarked()).To(BeFalse())
	f.SetConnection(s.host, infrav1.ConnectionConnected)
	f.Expect(s.expect(no, infrav1.UpgradeWaitingForClusterAPIReason)).To(ContainSubstring("feature gates RuntimeSDK and InPlaceUpdates"))
	f.Expect(s.isMarked()).To(BeTrue())
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Marked Machine h1 for an update in place to Kubernetes v1.36.3")))
	f.Client.Forget()
	s.reconcile()
	f.Expect(f.Client.Writes()).To(BeEmpty())

	t.Log("From then on it goes as for others")
	s.ask()
	s.expect(no, infrav1.UpgradingReason)
	f.Expect(s.host.Spec.NodeUpgrade.Role).To(Equal(infrav1.UpgradeFirstControlPlane))
}

func TestWhatTheOnlyMachineIsNotMarkedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*single)
		message string // of the condition; blank for none
		// refused says whether a second Machine is refused.
		refused bool
	}{
		"another change, Required": {func(s *single) {
			controllertest.Change(s.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) {
				k.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"x"}
			})
			s.healthy(yes, yes)
		}, "spec.preKubeadmCommands of the KubeadmConfig can't be changed in place; the rollout is stopped", true},
		"another change, Preferred": {func(s *single) {
			s.mode(infrav1.InPlacePreferred)
			controllertest.Change(s.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) {
				k.Spec.KubeadmConfigSpec.PreKubeadmCommands = []string{"x"}
			})
			s.healthy(yes, yes)
		}, "Cluster API replaces the Machine", false},
		"the mode Off": {func(s *single) { s.mode(infrav1.InPlaceOff) }, "", false},
		"three replicas": {func(s *single) {
			controllertest.Change(s.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) { k.Spec.Replicas = new(int32(3)) })
		}, "Waiting for the turn of Machine h1", false},
		"no release": {func(s *single) {
			s.Delete(&infrav1.ElementalKubernetesRelease{ObjectMeta: s.Meta(wanted)})
		}, "There is no ElementalKubernetesRelease v1.36.3", true},
		"a Machine to be deleted": {func(s *single) {
			controllertest.Change(s.Fixture, s.owner, func(o *clusterv1.Machine) { o.Annotations = map[string]string{clusterv1.DeleteMachineAnnotation: ""} })
		}, "has the annotation cluster.x-k8s.io/delete-machine", true},
		"another Machine of the control plane": {func(s *single) { s.fixture.node("h2", controllertest.ControlPlane) }, "the control plane has another Machine", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSingle(t)
			s.healthy(yes, yes)
			tc.change(s)
			s.reconcile()
			s.Expect(s.isMarked()).To(BeFalse())
			if tc.message == "" {
				s.Expect(s.condition()).To(BeNil())
			} else {
				s.Expect(s.condition().Message).To(ContainSubstring(tc.message))
			}
			refused := s.surge() != ""
			s.Expect(refused).To(Equal(tc.refused), s.surge())
		})
	}
}

func TestSurges(t *testing.T) {
	s := newSingle(t)
	s.Expect(s.surge()).To(ContainSubstring("Required: Machines are not replaced, and ElementalMachine h1 exists"))
	s.mode(infrav1.InPlacePreferred)
	s.Expect(s.surge()).To(Equal("ElementalMachine h1 is upgraded to Kubernetes v1.36.3 in place"))

	t.Log("A rollout without another version replaces the Machine")
	controllertest.Change(s.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) { k.Spec.Version = former })
	s.Expect(s.surge()).To(BeEmpty())

	t.Log("A Machine that leaves is replaced")
	s.mode(infrav1.InPlaceRequired)
	controllertest.Change(s.Fixture, s.machine, func(m *infrav1.ElementalMachine) { m.Finalizers = []string{"example.com/hold"} })
	s.Delete(s.machine)
	s.Expect(s.surge()).To(BeEmpty())
}

// After a version that failed and was ended, the next one is another update.
func TestAnotherVersionAfterAFailure(t *testing.T) {
	s := newSingle(t)
	f := s.fixture
	s.healthy(yes, yes)
	s.ask()
	s.reconcile()
	s.report(infrav1.OperationFailed, "kubelet", "rolled back: the kubelet did not start")
	s.end()
	s.expect(no, infrav1.UpgradeRolledBackReason)

	f.Create(&infrav1.ElementalKubernetesRelease{ObjectMeta: f.Meta("v1.36.4"), Spec: infrav1.ElementalKubernetesReleaseSpec{
		Version: "v1.36.4", Bundles: []infrav1.KubernetesBundle{{Architecture: "amd64", SHA256: digest, SizeBytes: 1}},
	}})
	controllertest.Change(f.Fixture, s.kcp, func(k *controlplanev1.KubeadmControlPlane) { k.Spec.Version = "v1.36.4" })
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: f.Meta("h1")}
	controllertest.Change(f.Fixture, config, func(c *bootstrapv1.KubeadmConfig) { c.Spec.ClusterConfiguration.FeatureGates = nil })
	s.healthy(yes, yes)
	s.expect(no, infrav1.UpgradeWaitingForClusterAPIReason)
	f.Expect(s.isMarked()).To(BeTrue())
}

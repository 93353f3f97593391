package etcdrestore_test

import (
	"testing"

	. "github.com/onsi/gomega"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// A control plane that can't be set up again is a reason to refuse, which people can read and
// correct. The host is asked to set it up only when that is confirmed.
func TestRebuild(t *testing.T) {
	f := newFixture(t)
	f.Report(f.host, func(status *infrav1.ElementalHostStatus) {
		status.Agent.Capabilities = append(status.Agent.Capabilities, "ControlPlaneRebuild")
	})
	f.Delete(f.restore)
	f.restore = &infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta("r")}
	f.restore.Spec = infrav1.ElementalEtcdRestoreSpec{
		ClusterName: "c", RebuildControlPlane: new(true), Source: infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "1"}},
	}
	f.Create(f.restore)
	refused := func(why string) {
		t.Helper()
		f.expect(no, infrav1.RestoreRefusedReason)
		f.Expect(f.restore.Status.Conditions[0].Message).To(ContainSubstring(why))
	}
	refused("there is no Machine m")
	machine := &clusterv1.Machine{ObjectMeta: f.Meta("m")}
	machine.Spec.ClusterName, machine.Spec.Version = "c", "v1.36.3"
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: "m"}
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m"}
	f.Create(machine)
	refused("its Machine has no bootstrap data")
	controllertest.Change(f.Fixture, machine, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = new("m") })
	refused("no KubeadmControlPlane")
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: "cp"}
	})
	refused("getting KubeadmControlPlane cp")
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: f.Meta("cp")}
	kcp.Spec.Version = "v1.36.3"
	kcp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: "c"}
	f.Create(kcp)
	f.expect(no, infrav1.RestoreNotConfirmedReason)
	f.Expect(f.restore.Status.Plan.Steps).To(ContainElement(ContainSubstring("sets up its control plane again")))
	f.confirm()
	f.reconcile()
	f.Expect(f.host.Spec.EtcdRestore.RebuildControlPlane).To(HaveValue(BeTrue()))
	f.Expect(f.operation().EtcdRestore.Rebuild).To(BeTrue())
}

// A host that has lost its control plane is no survivor, and what was confirmed does not change.
func TestRebuildIsValidated(t *testing.T) {
	f := newFixture(t)
	survivor := &infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta("survivor")}
	survivor.Spec = infrav1.ElementalEtcdRestoreSpec{
		ClusterName: "c", RebuildControlPlane: new(true), Source: infrav1.EtcdRestoreSource{Survivor: &infrav1.EtcdRestoreSurvivor{HostName: "h"}},
	}
	f.Expect(f.Client.Create(f.Ctx, survivor)).To(MatchError(ContainSubstring("is no survivor")))
	f.confirm()
	f.restore.Spec.RebuildControlPlane = new(true)
	f.Expect(f.Client.Update(f.Ctx, f.restore)).To(MatchError(ContainSubstring("a confirmed restore can't change")))
}

package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func pauseCluster(c *clusterv1.Cluster)  { c.Spec.Paused = new(true) }
func resumeCluster(c *clusterv1.Cluster) { c.Spec.Paused = nil }

// `clusterctl move` pauses the cluster, and then waits two minutes at most until no object
// has the annotation block-move. It must wait for a bootstrap that runs, and for nothing else.
func TestPausedMachineBlocksAMoveOnlyWhileItBootstraps(t *testing.T) {
	for name, tc := range map[string]struct {
		bootstrap    infrav1.OperationState
		disconnected bool
		want         bool
	}{
		"claimed":                    {"", false, false},
		"bootstrapping":              {infrav1.OperationRunning, false, true},
		"died during the bootstrap":  {infrav1.OperationRunning, true, false},
		"bootstrap failed":           {infrav1.OperationFailed, false, false},
		"bootstrapped, not recorded": {infrav1.OperationSucceeded, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			cluster, _ := f.Cluster("c")
			_, machine := bound(f, host, "m", false)
			f.Expect(machine.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
			if tc.bootstrap != "" {
				f.ReportOperation(host, infrav1.OperationBootstrap, tc.bootstrap)
			}
			if tc.disconnected {
				f.SetConnection(host, infrav1.ConnectionDisconnected)
			}
			controllertest.Change(f.Fixture, cluster, pauseCluster)
			f.reconcile(machine)
			blocked := func() bool {
				f.Refresh(machine)
				_, found := machine.Annotations[clusterctlv1.BlockMoveAnnotation]
				return found
			}
			f.Expect(blocked()).To(Equal(tc.want))
			f.ExpectCondition(machine, clusterv1.PausedCondition, yes, clusterv1.PausedReason)
			f.Client.Forget()
			f.reconcile(machine)
			f.Expect(f.Client.Writes()).To(BeEmpty())

			if tc.bootstrap == infrav1.OperationRunning {
				f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
				f.reconcile(machine)
				f.Expect(blocked()).To(BeFalse(), "the bootstrap is over")
				return
			}
			controllertest.Change(f.Fixture, cluster, resumeCluster)
			f.reconcile(machine)
			f.Expect(blocked()).To(Equal(tc.bootstrap == ""), "a bootstrap that begins after the pause blocks a move again")
			if tc.bootstrap == "" {
				f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
				f.reconcile(machine)
				f.Expect(blocked()).To(BeFalse())
				f.Expect(machine.Spec.ProviderID).NotTo(BeEmpty())
			}
		})
	}
}

// An annotation that another client set stays as it is.
func TestForeignBlockMoveStays(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	cluster, _ := f.Cluster("c")
	_, machine := bound(f, host, "m", false)
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) {
		m.Annotations[clusterctlv1.BlockMoveAnnotation] = "backup"
	})
	controllertest.Change(f.Fixture, cluster, pauseCluster)
	f.reconcile(machine)
	f.Expect(machine.Annotations).To(HaveKeyWithValue(clusterctlv1.BlockMoveAnnotation, "backup"))
}

// moved creates the objects again as `clusterctl move` does: without status, with other
// UIDs, and without the deletionTimestamp.
func moved(f *fixture, owner *clusterv1.Machine, machine *infrav1.ElementalMachine) {
	f.T.Helper()
	f.Refresh(owner)
	f.Refresh(machine)
	copied := func(o metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations, Finalizers: o.Finalizers}
	}
	newOwner := &clusterv1.Machine{ObjectMeta: copied(owner.ObjectMeta), Spec: owner.Spec}
	newMachine := &infrav1.ElementalMachine{ObjectMeta: copied(machine.ObjectMeta), Spec: machine.Spec}
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.Finalizers = nil })
	controllertest.Change(f.Fixture, owner, func(o *clusterv1.Machine) { o.Finalizers = nil })
	f.Expect(f.Exists(owner) || f.Exists(machine)).To(BeFalse())
	f.Create(newOwner)
	newMachine.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: newOwner.Name, UID: newOwner.UID,
	}}
	f.Create(newMachine)
	*owner, *machine = *newOwner, *newMachine
}

// A Machine that was being deleted when it was moved or restored is deleted again.
func TestDeletionIsResumedAfterAMove(t *testing.T) {
	for name, tc := range map[string]struct {
		policy infrav1.ReleaseAction
		fence  bool
		want   string
	}{
		"released": {infrav1.ReleaseReset, false, "Releasing m"},
		"held":     {infrav1.ReleaseHold, false, "Held m"},
		"fenced":   {infrav1.ReleaseReset, true, "Releasing m"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			cluster, _ := f.Cluster("c")
			owner, machine := bound(f, host, "m", true)
			controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) {
				m.Spec.Release.Policy = tc.policy
				m.Finalizers = append(m.Finalizers, "example.com/keep")
			})
			if tc.fence {
				controllertest.Change(f.Fixture, host, fence)
			} else {
				f.Delete(owner)
				f.Delete(machine)
			}
			f.reconcile(machine)
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal(tc.want))
			f.Refresh(owner)
			f.Expect(owner.Annotations).To(HaveKey(clusterv1.DeleteMachineAnnotation), "a MachineSet with one Machine too many deletes this one")
			f.Expect(owner.DeletionTimestamp).NotTo(BeNil())

			if f.Refresh(machine); machine.DeletionTimestamp.IsZero() {
				f.Delete(machine)
			}
			controllertest.Change(f.Fixture, cluster, pauseCluster)
			moved(f, owner, machine)
			claimID := host.Spec.Claim.ID
			f.reconcile(machine)
			f.Refresh(owner)
			f.Expect(owner.DeletionTimestamp).To(BeNil(), "nothing is done while the cluster is paused")
			controllertest.Change(f.Fixture, cluster, resumeCluster)
			f.Events()
			f.reconcile(machine)
			f.Refresh(owner)
			f.Expect(owner.DeletionTimestamp).NotTo(BeNil())
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal(tc.want))
			f.Expect(host.Spec.Claim.ID).To(Equal(claimID))
			if !tc.fence {
				f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.DeletionResumedReason)))
			}
			f.Client.Forget()
			f.reconcile(machine)
			f.Expect(f.Client.Writes()).To(BeEmpty(), "it is deleted once")
		})
	}
}

// A host that was released for another claim does not delete the Machine.
func TestReleasedHostDeletesNoOtherMachine(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) {
		h.Spec.Claim.Phase, h.Spec.Claim.ID = infrav1.ClaimReleasing, "another"
	})
	f.reconcile(machine)
	f.Refresh(owner)
	f.Expect(owner.DeletionTimestamp).To(BeNil())
	f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.HostMissingReason)
}

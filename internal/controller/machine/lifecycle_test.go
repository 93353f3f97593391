package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

func TestLifecycle(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1", func(h *infrav1.ElementalHost) {
		h.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: "zone-a"}
	})
	cluster, _ := f.Cluster("c", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		c.Status.Initialization.InfrastructureProvisioned = nil
	})
	owner, machine := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Bootstrap.DataSecretName = nil
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m"}
		o.Spec.FailureDomain = "zone-a"
	})

	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.WaitingForInfrastructureReason)
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.WaitingForInfrastructureReason)
	f.Expect(machine.Finalizers).To(ConsistOf(infrav1.MachineFinalizer))

	controllertest.ChangeStatus(f.Fixture, cluster, func(c *clusterv1.Cluster) {
		c.Status.Initialization.InfrastructureProvisioned = new(true)
	})
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.WaitingForBootstrapDataReason)
	f.Refresh(host)
	f.Expect(host.Spec.Claim).To(BeNil(), "a machine without bootstrap data must not claim a host")

	controllertest.Change(f.Fixture, owner, func(o *clusterv1.Machine) { o.Spec.Bootstrap.DataSecretName = new("data") })
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
	f.Expect(host.Spec.Claim.ClusterName).To(Equal("c"))
	f.Expect(host.Spec.Claim.Role).To(Equal(infrav1.RoleWorker))
	f.Expect(*machine.Spec.HostRef).To(Equal(infrav1.HostReference{Name: "h1", ClaimID: host.Spec.Claim.ID}))
	f.Expect(machine.Spec.ProviderID).To(BeEmpty())
	f.Expect(machine.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation), "clusterctl move must wait for the bootstrap")
	f.ExpectCondition(machine, infrav1.HostClaimedCondition, yes, infrav1.HostClaimedReason)
	f.Expect(apimeta.FindStatusCondition(machine.Status.Conditions, infrav1.HostClaimedCondition).Message).To(Equal("ElementalHost h1"))
	f.ExpectCondition(machine, infrav1.BootstrappedCondition, no, infrav1.BootstrappingReason)

	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationRunning)
	f.Client.Forget()
	f.reconcile(machine)
	f.Expect(f.Client.Writes()).To(BeEmpty(), "progress must be shown on the host only")

	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	f.reconcile(machine)
	f.Expect(machine.Spec.ProviderID).To(Equal("elemental://" + f.Namespace + "/h1"))
	f.Expect(machine.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.Expect(machine.Status.FailureDomain).To(Equal("zone-a"))
	f.Expect(machine.Status.Addresses).To(ConsistOf(
		clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.1.1.1"},
		clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "h1"},
	))
	f.Expect(machine.Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation))
	f.ExpectCondition(machine, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.Expect(f.Events()).To(ContainElements(ContainSubstring("Claimed host h1"), ContainSubstring("bootstrapped")))

	f.Client.Forget()
	f.reconcile(machine)
	f.Expect(f.Client.Writes()).To(BeEmpty(), "an unchanged machine must not be written")
}

func TestConditionsShowAFailedBootstrap(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	_, machine := f.Machine("c", "m")
	f.reconcile(machine)
	f.Refresh(host)
	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(s, infrav1.HostOperation{
			Type: infrav1.OperationBootstrap, ID: host.Spec.Claim.ID, State: infrav1.OperationFailed, Step: "runcmd", Message: "exit code 7",
		})
	})
	f.reconcile(machine)
	c := f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.BootstrapFailedReason)
	f.Expect(c.Message).To(And(ContainSubstring("h1"), ContainSubstring("runcmd"), ContainSubstring("exit code 7")))
	f.Expect(machine.Spec.ProviderID).To(BeEmpty())
	f.Expect(machine.Status.Initialization.Provisioned).To(BeNil())
	f.Expect(f.Events()).To(ContainElement(And(ContainSubstring("Warning"), ContainSubstring(infrav1.BootstrapFailedReason))))
}

func TestWaitsForItsOwner(t *testing.T) {
	f := newFixture(t)
	f.Host("h1")
	machine := &infrav1.ElementalMachine{ObjectMeta: f.Meta("m")}
	f.Create(machine)
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.WaitingForOwnerReason)
	f.Expect(machine.Finalizers).To(BeEmpty())
	f.Expect(machine.Spec.HostRef).To(BeNil())
}

func TestPausedMachinesClaimNothing(t *testing.T) {
	for name, pause := range map[string]func(*fixture, *clusterv1.Cluster, *infrav1.ElementalMachine){
		"cluster": func(f *fixture, c *clusterv1.Cluster, _ *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, c, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		},
		"annotation": func(f *fixture, _ *clusterv1.Cluster, m *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, m, func(m *infrav1.ElementalMachine) {
				m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			})
		},
		"missing cluster": func(f *fixture, c *clusterv1.Cluster, _ *infrav1.ElementalMachine) { f.Delete(c) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			cluster, _ := f.Cluster("c")
			_, machine := f.Machine("c", "m")
			pause(f, cluster, machine)
			f.reconcile(machine)
			f.ExpectCondition(machine, clusterv1.PausedCondition, yes, clusterv1.PausedReason)
			f.Expect(machine.Spec.HostRef).To(BeNil())
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("free"))
		})
	}
}

func TestPausedMachinesAreNotReleased(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	cluster, _ := f.Cluster("c")
	_, machine := f.Machine("c", "m")
	f.reconcile(machine)
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))

	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

func TestWatchFilter(t *testing.T) {
	f := newFixture(t)
	f.Host("a-foreign")
	mine := f.Host("b-mine", func(h *infrav1.ElementalHost) { h.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })
	f.Cluster("c")
	_, other := f.Machine("c", "other")
	_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Labels[clusterv1.WatchLabel] = "mine" })
	f.reconciler.WatchFilter = "mine"
	f.reconcile(other)
	f.Expect(other.Status.Conditions).To(BeEmpty(), "the machine of another manager must not change")
	f.reconcile(machine)
	f.Refresh(mine)
	f.Expect(claimOf(mine)).To(Equal("Bound m"), "hosts of other managers must not be claimed, because this manager gets no events of them")
}

// Objects that are moved or restored have spec and metadata only, and new UIDs. Running
// hosts must not be affected (decisions 1, 4 and 6).
func TestRestore(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	const id = "4b1d0c6e"
	host := f.Host("h1", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: id, ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
		h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "sha256:" + sixtyFour, Generation: 2}
		h.Status = infrav1.ElementalHostStatus{}
	})
	free := f.Host("h0")
	_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Finalizers = []string{infrav1.MachineFinalizer}
		m.Spec.ProviderID = "elemental://" + f.Namespace + "/h1"
		m.Spec.HostRef = &infrav1.HostReference{Name: "h1", ClaimID: id}
	})
	before := host.Spec.DeepCopy()
	f.reconcile(machine)
	f.Expect(machine.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "a restored machine is provisioned at once, without a report of the host")
	f.ExpectCondition(machine, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.settle([]*infrav1.ElementalMachine{machine}, []*infrav1.ElementalHost{host, free})
	f.Refresh(host)
	f.Expect(host.Spec).To(Equal(*before))
	f.Refresh(free)
	f.Expect(claimOf(free)).To(Equal("free"))
	f.Expect(machine.Spec.HostRef.ClaimID).To(Equal(id))
}

func TestRestoreWithoutTheHost(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	free := f.Host("h0")
	_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.ProviderID = "elemental://" + f.Namespace + "/h1"
		m.Spec.HostRef = &infrav1.HostReference{Name: "h1", ClaimID: "a"}
	})
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.HostMissingReason)
	f.Expect(machine.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.Refresh(free)
	f.Expect(claimOf(free)).To(Equal("free"), "a missing host must not be replaced by another")
}

func TestDeleteForMoveReleasesNothing(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	_, machine := f.Machine("c", "m")
	f.reconcile(machine)
	f.Delete(machine)
	// clusterctl replaces the map of annotations of the objects that it deletes.
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) {
		m.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	})
	f.Refresh(host)
	before := host.DeepCopy()
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
	f.Refresh(host)
	f.Expect(host).To(Equal(before))
	f.Expect(client.ObjectKeyFromObject(host)).NotTo(BeZero())
}

const sixtyFour = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

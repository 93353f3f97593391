package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// impostor creates an ElementalMachine that has the Machine as owner, while the Machine
// names another.
func (f *fixture) impostor(owner *clusterv1.Machine, change func(*infrav1.ElementalMachine)) *infrav1.ElementalMachine {
	f.T.Helper()
	m := &infrav1.ElementalMachine{ObjectMeta: f.Meta("impostor")}
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: owner.Spec.ClusterName}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: owner.Name, UID: owner.UID}}
	m.Finalizers = []string{infrav1.MachineFinalizer}
	change(m)
	f.Create(m)
	return m
}

// An ElementalMachine that merely has a Machine as owner claims no host, and tells why.
func TestThreat49_ImpostorClaimsNothing(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := f.Machine("c", "m")
	impostor := f.impostor(owner, func(*infrav1.ElementalMachine) {})
	f.reconcile(impostor)
	f.Expect(impostor.Spec.HostRef).To(BeNil())
	for _, condition := range []string{infrav1.ReadyCondition, infrav1.HostClaimedCondition} {
		f.Expect(f.ExpectCondition(impostor, condition, no, infrav1.ReferenceMismatchReason).Message).
			To(And(ContainSubstring("Machine m as owner"), ContainSubstring("names ElementalMachine m")))
	}
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
	f.Delete(impostor)
	f.reconcile(impostor)
	f.Expect(f.Exists(impostor)).To(BeFalse(), "its finalizer must not stay")
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
}

// The ID of a claim is no secret. Whoever writes it into another ElementalMachine can't
// release the host by deleting that, whatever Machine it claims to belong to.
func TestThreat49_ImpostorReleasesNothing(t *testing.T) {
	for name, of := range map[string]func(f *fixture, victim *clusterv1.Machine) *clusterv1.Machine{
		"with the Machine of the claim": func(_ *fixture, victim *clusterv1.Machine) *clusterv1.Machine { return victim },
		"with a Machine of its own": func(f *fixture, _ *clusterv1.Machine) *clusterv1.Machine {
			own, _ := f.Machine("c", "own", func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
				o.Spec.InfrastructureRef.Name, m.Name = "impostor", "unused"
			})
			return own
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			f.Cluster("c")
			victim, machine := bound(f, host, "m", true)
			impostor := f.impostor(of(f, victim), func(m *infrav1.ElementalMachine) { m.Spec.HostRef = machine.Spec.HostRef })
			f.Delete(impostor)
			f.reconcile(impostor)
			f.Expect(f.Exists(impostor)).To(BeFalse())
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Bound m"))
			f.Delete(victim)
			f.Delete(machine)
			f.reconcile(machine)
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Releasing m"))
		})
	}
}

// The Machine says which cluster a host is claimed for, not a label of the
// ElementalMachine: its host would otherwise count as one of another cluster's control
// plane.
func TestThreat49_LabelOfAnotherCluster(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	f.Cluster("victim")
	_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Labels[clusterv1.ClusterNameLabel] = "victim"
	})
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(host.Spec.Claim.ClusterName).To(Equal("c"))
}

// An ElementalCluster that the Cluster does not name can't hold the cluster's hosts.
func TestThreat49_ImpostorHoldsNothing(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	cluster, _ := f.Cluster("c")
	impostor := &infrav1.ElementalCluster{ObjectMeta: f.Meta("impostor")}
	impostor.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	impostor.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""}
	impostor.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: cluster.UID}}
	f.Create(impostor)
	owner, machine := bound(f, host, "m", true)
	f.Delete(owner)
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

// A Cluster of another provider may name an object that has the name of an
// ElementalCluster, which then decides nothing about its hosts.
func TestThreat49_NameOfAnotherKind(t *testing.T) {
	f := newFixture(t)
	f.Host("h1", labelled(map[string]string{"rack": "a", infrav1.DefaultFailureDomainLabel: "b"}))
	f.Host("h2", labelled(map[string]string{infrav1.DefaultFailureDomainLabel: "a"}))
	f.Cluster("c", func(c *clusterv1.Cluster, infra *infrav1.ElementalCluster) {
		c.Spec.InfrastructureRef.Kind = "OtherCluster"
		infra.Spec.FailureDomains.HostLabel = "rack"
	})
	_, machine := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = "a" })
	f.reconcile(machine)
	f.Expect(machine.Spec.HostRef.Name).To(Equal("h2"))
}

// While the owner reference does not match, somebody may end the claim of a host whose bootstrap has failed.
func TestMismatchAndNoClaim(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	_, machine := f.Machine("c", "m")
	f.reconcile(machine)
	f.Refresh(host)
	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationFailed)
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil })
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.OwnerReferences[0].UID = "former" })
	f.reconcile(machine)
	failed := f.ExpectCondition(machine, infrav1.BootstrappedCondition, no, infrav1.BootstrapFailedReason)
	f.Expect(failed.Message).To(HavePrefix("The bootstrap failed on host h1"))
}

// After a restore the owner reference may have the UID of the former Machine, until Cluster
// API corrects it.
func TestOwnerReferenceIsCorrectedLater(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := f.Machine("c", "m")
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.OwnerReferences[0].UID = "former" })
	f.reconcile(machine)
	f.Expect(f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.ReferenceMismatchReason).Message).
		To(ContainSubstring("compare metadata.ownerReferences here with metadata.uid there, which is " + string(owner.UID)))
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.OwnerReferences[0].UID = owner.UID })
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))

	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.OwnerReferences[0].UID = "former" })
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"), "its host is reset also without the owner")
}

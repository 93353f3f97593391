package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// ownedBy sets the owner reference to the Cluster.
func ownedBy(c *clusterv1.Cluster) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID}}
}

// impostor creates an ElementalCluster that has the label, the finalizer and the owner of
// the fixture's, while the Cluster names the fixture's.
func (f *fixture) impostor(change func(*infrav1.ElementalCluster)) *infrav1.ElementalCluster {
	f.T.Helper()
	o := &infrav1.ElementalCluster{ObjectMeta: f.Meta("impostor")}
	o.Labels, o.OwnerReferences = map[string]string{clusterv1.ClusterNameLabel: "c"}, ownedBy(f.cluster)
	o.Finalizers = []string{infrav1.ClusterFinalizer}
	change(o)
	f.Create(o)
	return o
}

// reconcileAnother reconciles another ElementalCluster than the fixture's, twice.
func (f *fixture) reconcileAnother(o *infrav1.ElementalCluster) {
	f.T.Helper()
	for range 2 {
		_, err := f.newReconciler().Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		f.Expect(err).NotTo(HaveOccurred())
	}
	f.Exists(o)
}

// versions returns the resource versions of the cluster's objects and of all hosts.
func (f *fixture) versions() map[string]string {
	f.T.Helper()
	versions := map[string]string{}
	for kind, list := range map[string]client.ObjectList{
		"Cluster": &clusterv1.ClusterList{}, "Machine": &clusterv1.MachineList{}, "ElementalHost": &infrav1.ElementalHostList{},
	} {
		f.Expect(f.Admin.List(f.Ctx, list, client.InNamespace(f.Namespace))).To(Succeed())
		switch items := list.(type) {
		case *clusterv1.ClusterList:
			for i := range items.Items {
				versions[kind+items.Items[i].Name] = items.Items[i].ResourceVersion
			}
		case *clusterv1.MachineList:
			for i := range items.Items {
				versions[kind+items.Items[i].Name] = items.Items[i].ResourceVersion
			}
		case *infrav1.ElementalHostList:
			for i := range items.Items {
				versions[kind+items.Items[i].Name] = items.Items[i].ResourceVersion
			}
		}
	}
	return versions
}

// An ElementalCluster that merely has a Cluster as owner moves no endpoint, adds and removes
// no hook, publishes nothing and reserves nothing, and tells why.
func TestThreat49_ImpostorOfARunningCluster(t *testing.T) {
	for name, change := range map[string]func(*infrav1.ElementalCluster){
		"with the owner": func(*infrav1.ElementalCluster) {},
		"with a request to move": func(c *infrav1.ElementalCluster) {
			c.Annotations = map[string]string{infrav1.MoveEndpointAnnotation: "h2"}
			c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
			c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
				Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h1", ChosenAt: metav1.NewTime(longAgo)},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.reconcileUntilStable()
			f.Refresh(f.machines["h1"])
			f.Expect(f.machines["h1"].Annotations).To(HaveKey(infrav1.EndpointHookAnnotation))
			before := f.versions()
			o := f.impostor(change)
			f.reconcileAnother(o)
			condition := f.ExpectCondition(o, infrav1.ReadyCondition, no, infrav1.ReferenceMismatchReason)
			f.Expect(condition.Message).To(And(ContainSubstring("Cluster c as owner"), ContainSubstring("names ElementalCluster c")))
			f.Expect(o.Status.FailureDomains).To(BeEmpty())
			f.Expect(o.Status.Initialization.Provisioned).To(BeNil())
			f.Delete(o)
			f.reconcileAnother(o)
			f.Expect(f.Exists(o)).To(BeFalse(), "its finalizer must not stay")
			f.Expect(f.versions()).To(Equal(before))
		})
	}
}

// The deletion of an ElementalCluster that nothing but its label connects with a Cluster
// ends no reservation of the Cluster.
func TestThreat49_ReservationSurvivesAnImpostor(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(nil)
	host := f.host("h1", "10.0.0.1")
	f.reconcileUntilStable()
	f.Expect(f.claimOf(host)).To(Equal("Reserved c"))
	for _, owners := range [][]metav1.OwnerReference{nil, ownedBy(f.cluster)} {
		o := f.impostor(func(c *infrav1.ElementalCluster) { c.OwnerReferences = owners })
		f.Delete(o)
		f.reconcileAnother(o)
		f.Expect(f.Exists(o)).To(BeFalse())
		f.Expect(f.claimOf(host)).To(Equal("Reserved c"))
	}
	f.Delete(f.infra)
	f.reconcileUntilStable()
	f.Expect(f.claimOf(host)).To(Equal("free"), "its own ElementalCluster ends the reservation")
}

// An ElementalCluster can't keep a virtual IP address from a cluster by claiming to belong
// to a Cluster, however old it is.
func TestThreat49_ImpostorWantsAVirtualIP(t *testing.T) {
	const address = "10.20.27.100"
	f := newFixture(t, kubeadm, virtual(address))
	f.controlPlane(nil)
	f.host("a", "10.20.27.1", nic("eth0", "10.20.27.1/24"))
	thief := newFixture(t, kubeadm)
	// Equal names, and a namespace that is first by name, decide between objects of one second.
	want := virtual(address, func(v *infrav1.EndpointVIP) { v.Distribution = infrav1.DistributionKubeadm })
	impostor := thief.impostor(func(c *infrav1.ElementalCluster) {
		want(nil, c)
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}
	})
	thief.host("b", "10.20.28.1", bound(infrav1.RoleControlPlane))
	thief.reconcileAnother(impostor)
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
}

// The topology controller may set the owner before the Cluster has its reference; after a
// restore the owner reference has the former UID. Both end without help.
func TestReferencesAreCompletedLater(t *testing.T) {
	var ref clusterv1.ContractVersionedObjectReference
	f := newFixture(t, kubeadm, func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		ref, c.Spec.InfrastructureRef = c.Spec.InfrastructureRef, clusterv1.ContractVersionedObjectReference{}
	})
	f.controlPlane(nil)
	f.host("h1", "10.0.0.1")
	f.reconcileUntilStable()
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.ReferenceMismatchReason).Message).To(ContainSubstring("not set yet"))
	f.Expect(f.infra.Finalizers).To(BeEmpty())
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.InfrastructureRef = ref })
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)

	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.OwnerReferences[0].UID = "former" })
	f.reconcileUntilStable()
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.ReferenceMismatchReason).Message).
		To(ContainSubstring("compare metadata.ownerReferences here with metadata.uid there, which is " + string(f.cluster.UID)))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "what was published stays")
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.OwnerReferences = ownedBy(f.cluster) })
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
}

// An ElementalCluster that lost its owner can be deleted, and leaves no reservation.
func TestDeletionWithoutTheOwnerReference(t *testing.T) {
	for name, lose := range map[string]func(*infrav1.ElementalCluster){
		"no owner":        func(c *infrav1.ElementalCluster) { c.OwnerReferences = nil },
		"a former owner":  func(c *infrav1.ElementalCluster) { c.OwnerReferences[0].UID = "former" },
		"a missing owner": func(c *infrav1.ElementalCluster) { c.OwnerReferences[0].Name = "gone" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm)
			f.controlPlane(nil)
			host := f.host("h1", "10.0.0.1")
			f.reconcileUntilStable()
			controllertest.Change(f.Fixture, f.infra, lose)
			f.Delete(f.infra)
			f.reconcileAnother(f.infra)
			f.Expect(f.Exists(f.infra)).To(BeFalse())
			f.Expect(f.claimOf(host)).To(Equal("free"))
		})
	}
}

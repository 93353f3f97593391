package certificates

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// A cluster whose host waits for an agent that can renew certificates is woken by that agent, which may
// change nothing else.
func TestNewAgentConcernsTheCluster(t *testing.T) {
	before := &infrav1.ElementalHost{}
	before.Status.Agent = &infrav1.HostAgent{Version: "v0.1.0", Capabilities: []string{string(infrav1.OperationBootstrap)}}
	after := before.DeepCopy()
	after.Status.Agent.Version = "v0.1.1"
	if concernsHost(before, after) {
		t.Error("another version alone wakes the cluster")
	}
	after.Status.Agent.Capabilities = append(after.Status.Agent.Capabilities, string(infrav1.OperationCertificateRenewal))
	if !concernsHost(before, after) {
		t.Error("an agent that can renew certificates does not wake the cluster")
	}
}

// What a reconcile reads of a Machine wakes its cluster. Cluster API writes much else into Machines,
// such as the state of their Nodes.
func TestEventsOfMachines(t *testing.T) {
	annotation := func(name, value string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) { m.Annotations = map[string]string{name: value} }
	}
	for name, tc := range map[string]struct {
		change   func(*clusterv1.Machine)
		concerns bool
	}{
		"its deletion":                    {func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }, true},
		"an upgrade":                      {annotation(clusterv1.UpdateInProgressAnnotation, ""), true},
		"another end of its certificates": {annotation(clusterv1.MachineCertificatesExpiryDateAnnotation, "2027-01-01T00:00:00Z"), true},
		"another annotation":              {annotation("team", "shop"), false},
		"its specification":               {func(m *clusterv1.Machine) { m.Generation++ }, false},
		"its status":                      {func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, false},
		"nothing":                         {func(*clusterv1.Machine) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			without, with := &clusterv1.Machine{}, &clusterv1.Machine{}
			tc.change(with)
			passes := machineChanges()
			g.Expect(passes.Update(event.UpdateEvent{ObjectOld: without, ObjectNew: with})).To(Equal(tc.concerns), "it begins")
			g.Expect(passes.Update(event.UpdateEvent{ObjectOld: with, ObjectNew: without})).To(Equal(tc.concerns), "it ends")
			g.Expect(passes.Create(event.CreateEvent{Object: with})).To(BeTrue())
			g.Expect(passes.Delete(event.DeleteEvent{Object: with})).To(BeTrue())
		})
	}
}

// Machines of workers wake nobody, because their hosts have no certificates of kubeadm.
func TestMachinesWakeTheirCluster(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "sites", Name: "c"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalCluster", Name: "infra"}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "sites", Name: "m"}, Spec: clusterv1.MachineSpec{ClusterName: "c"}}
	g.Expect(r.ofMachine(t.Context(), machine)).To(BeEmpty())
	machine.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	g.Expect(r.ofMachine(t.Context(), machine)).To(ConsistOf(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "sites", Name: "infra"}}))
	machine.Spec.ClusterName = "gone"
	g.Expect(r.ofMachine(t.Context(), machine)).To(BeEmpty())
}

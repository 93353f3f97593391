package webhook_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// deletions refuses those of Machines with the label replaced.
type deletions struct{}

func (deletions) RefuseDeletion(_ context.Context, m *clusterv1.Machine) (string, error) {
	switch m.Labels["replaced"] {
	case "refused":
		return "Machine m would be replaced", nil
	case "unknown":
		return "", errors.New("getting Cluster: timeout")
	default:
		return "", nil
	}
}

func testRefusedDeletion(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: env.Namespace(t), Labels: map[string]string{"replaced": "refused"}}}
	machine.Spec.ClusterName, machine.Spec.Bootstrap.DataSecretName = "c", new("x")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: "m"}
	g.Expect(c.Create(t.Context(), machine)).To(Succeed())
	refused := func(opts ...client.DeleteOption) {
		t.Helper()
		err := c.Delete(t.Context(), machine.DeepCopy(), opts...)
		g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		g.Expect(err).To(MatchError(ContainSubstring("Machine m would be replaced")))
	}
	events := func() []eventsv1.Event {
		list := &eventsv1.EventList{}
		g.Expect(c.List(t.Context(), list, client.InNamespace(machine.Namespace))).To(Succeed())
		return list.Items
	}
	refused(client.DryRunAll)
	refused()
	g.Eventually(events).WithTimeout(time.Minute).Should(ConsistOf(And(
		HaveField("Reason", "ReplacementRefused"), HaveField("Regarding.Name", "m"), HaveField("Note", "Machine m would be replaced"),
		HaveField("Series", BeNil()), // a dry run has none
	)))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())

	machine.Labels = map[string]string{"replaced": "unknown"}
	g.Expect(c.Update(t.Context(), machine)).To(Succeed())
	g.Expect(c.Delete(t.Context(), machine.DeepCopy())).To(MatchError(ContainSubstring("finding out whether the Machine would be replaced: getting Cluster: timeout")))

	machine.Labels = nil
	g.Expect(c.Update(t.Context(), machine)).To(Succeed())
	g.Expect(c.Delete(t.Context(), machine)).To(Succeed())
}

package webhook_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	good = `host.inventory.cpu.cores >= 8`
	bad  = `host.inventory.cpu.corez >= 8`
	// misspelt is what is said of bad.
	misspelt = `hostSelector.expression: Invalid value: "host.inventory.cpu.corez >= 8": line 1, column 19: undefined field 'corez'`
)

func newMachine(namespace, expression string) *infrav1.ElementalMachine {
	return &infrav1.ElementalMachine{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace},
		Spec:       infrav1.ElementalMachineSpec{HostSelector: &infrav1.HostSelector{Expression: expression}},
	}
}

func testMachineExpression(t *testing.T) {
	g := NewWithT(t)
	c, namespace := env.Client(t), env.Namespace(t)
	for text, message := range map[string]string{
		bad:         "spec." + misspelt,
		`host.name`: "must be true or false",
		`host.name == "` + strings.Repeat("a", 4096) + `"`:                                             "Too long: may not be more than 4096",
		`host.inventory.nics.all(n, host.inventory.nics.all(m, m.addresses.all(a, a in n.addresses)))`: "more than 30000",
	} {
		err := c.Create(t.Context(), newMachine(namespace, text))
		g.Expect(err).To(MatchError(ContainSubstring(message)))
		g.Expect(apierrors.IsInvalid(err)).To(BeTrue())
	}
	machine := newMachine(namespace, good)
	g.Expect(c.Create(t.Context(), machine)).To(Succeed())
	g.Expect(c.Create(t.Context(), &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}})).
		To(Succeed(), "without a selector")
	machine.Spec.HostSelector.Expression = `host.inventory.cpu.cores >= 4`
	g.Expect(c.Update(t.Context(), machine)).To(Succeed())
	machine.Spec.HostSelector.Expression = bad
	g.Expect(c.Update(t.Context(), machine)).To(MatchError(ContainSubstring("spec." + misspelt)))
}

// surges refuses machines with the label surge.
type surges struct{}

func (surges) RefuseSurge(_ context.Context, m *infrav1.ElementalMachine) (string, error) {
	switch m.Labels["surge"] {
	case "refused":
		return "Machine m is upgraded in place", nil
	case "unknown":
		return "", errors.New("getting Cluster: timeout")
	default:
		return "", nil
	}
}

func testRefusedMachine(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	machine := newMachine(env.Namespace(t), good)
	machine.Labels = map[string]string{"surge": "refused"}
	err := c.Create(t.Context(), machine.DeepCopy())
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("Machine m is upgraded in place")))
	machine.Labels["surge"] = "unknown"
	g.Expect(c.Create(t.Context(), machine.DeepCopy())).To(MatchError(ContainSubstring("looking for a machine that is changed in place")))
	delete(machine.Labels, "surge")
	g.Expect(c.Create(t.Context(), machine)).To(Succeed())
	machine.Labels = map[string]string{"surge": "refused"}
	g.Expect(c.Update(t.Context(), machine)).To(Succeed(), "a machine that exists is left alone")
}

func testDeletedMachine(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	machine := newMachine(env.Namespace(t), good)
	machine.Finalizers = []string{"test/hold"}
	g.Expect(c.Create(t.Context(), machine)).To(Succeed())
	g.Expect(c.Delete(t.Context(), machine)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	machine.Finalizers, machine.Spec.HostSelector.Expression = nil, bad
	g.Expect(c.Update(t.Context(), machine)).To(Succeed())
}

func testTemplateExpression(t *testing.T) {
	g := NewWithT(t)
	c, namespace := env.Client(t), env.Namespace(t)
	template := newTemplate(namespace)
	template.Spec.Template.Spec.HostSelector.Expression = bad
	g.Expect(c.Create(t.Context(), template)).To(MatchError(ContainSubstring("spec.template.spec." + misspelt)))
	template.Spec.Template.Spec.HostSelector.Expression = good
	g.Expect(c.Create(t.Context(), template)).To(Succeed())
	plain := newTemplate(namespace)
	plain.Spec.Template.Spec.HostSelector = nil
	g.Expect(c.Create(t.Context(), plain)).To(Succeed(), "without a selector")

	template.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	template.Spec.Template.Spec.HostSelector.Expression = bad
	g.Expect(c.Update(t.Context(), template, client.DryRunAll)).To(MatchError(ContainSubstring(misspelt)), "what the topology asks for")
}

// The status is the manager's to change, whatever is forbidden of the spec.
func testTemplateStatus(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	template := newTemplate(env.Namespace(t))
	g.Expect(c.Create(t.Context(), template)).To(Succeed())
	template.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	g.Expect(c.Status().Update(t.Context(), template)).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(template), template)).To(Succeed())
	g.Expect(template.Status.Capacity.Cpu().Value()).To(BeEquivalentTo(4))
}

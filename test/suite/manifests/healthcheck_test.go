package manifests_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestMachineHealthCheck(t *testing.T) {
	g := NewWithT(t)
	c, ns := env.Client(t), env.Namespace(t)
	all := objects(t, filepath.Join(release(t), "machine-health-check.yaml"), map[string]string{"CLUSTER_NAME": "c", "NAMESPACE": ns})
	g.Expect(apply(t.Context(), c, all)).To(Succeed())

	template := &infrav1.ElementalRemediationTemplate{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, template)).To(Succeed())
	g.Expect(template.Spec.Template.Spec.Reboots).To(HaveValue(BeEquivalentTo(1)))

	checks := &clusterv1.MachineHealthCheckList{}
	g.Expect(c.List(t.Context(), checks, client.InNamespace(ns))).To(Succeed())
	g.Expect(checks.Items).To(HaveLen(2))
	for _, check := range checks.Items {
		g.Expect(check.Spec.ClusterName).To(Equal("c"))
		g.Expect(check.Spec.Remediation.TemplateRef).To(Equal(clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalRemediationTemplate", Name: template.Name,
		}))
	}
}

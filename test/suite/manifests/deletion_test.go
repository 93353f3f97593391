package manifests_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// The webhook that keeps Cluster API from replacing Machines is required for deletions by its
// controllers, and for no others: nothing serves it here, so a deletion that needs it is refused.
func TestOnlyControllersNeedTheWebhookOfMachines(t *testing.T) {
	g := NewWithT(t)
	admin, ns := env.Client(t), env.Namespace(t)
	machine := func(name, group, kind string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
		m.Spec.ClusterName, m.Spec.Bootstrap.DataSecretName = "c", new("x")
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name}
		g.Expect(admin.Create(t.Context(), m)).To(Succeed())
		return m
	}
	ours := machine("ours", infrav1.GroupVersion.Group, "ElementalMachine")
	foreign := machine("foreign", infrav1.GroupVersion.Group, "FooMachine")
	requireWebhook(t, "deletion.machine.infrastructure.cluster.x-k8s.io")
	const core = "system:serviceaccount:capi-system:capi-manager"
	g.Eventually(func() error { return clientAs(t, core).Delete(t.Context(), ours.DeepCopy(), client.DryRunAll) }).
		WithTimeout(time.Minute).Should(MatchError(ContainSubstring("failed calling webhook")))

	for user, refused := range map[string]bool{
		core: true,
		"system:serviceaccount:capi-kubeadm-control-plane-system:capi-kubeadm-control-plane-manager": true,
		"system:serviceaccount:kube-system:generic-garbage-collector":                                false,
		"system:serviceaccount:kube-system:namespace-controller":                                     false,
		"system:kube-controller-manager":                                                             false,
		"system:serviceaccount:" + namespace + ":elemental-manager":                                  false,
		"somebody@example.com": false,
	} {
		t.Run(user, func(t *testing.T) {
			expectRefusal(t, clientAs(t, user).Delete(t.Context(), ours.DeepCopy(), client.DryRunAll), refused)
			expectRefusal(t, clientAs(t, user).Delete(t.Context(), foreign.DeepCopy(), client.DryRunAll), false)
		})
	}
}

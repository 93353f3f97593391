//go:build embedded

package embedded

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster API finds the hooks of a manager that offers updates in place.
func TestInPlaceUpdates(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	cluster, err := Start(t.Context(), Options{InPlaceUpdates: true, Progress: os.Stderr})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(cluster.Stop()).To(Succeed()) }()
	admin := newClient(g, cluster.Config)
	g.Eventually(func(g Gomega) {
		extension := &runtimev1.ExtensionConfig{}
		g.Expect(admin.Get(t.Context(), client.ObjectKey{Name: "elemental-in-place"}, extension)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(extension.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)).To(BeTrue(), "%v", extension.Status.Conditions)
		var hooks []string
		for _, handler := range extension.Status.Handlers {
			hooks = append(hooks, handler.RequestHook.Hook)
		}
		g.Expect(hooks).To(ConsistOf("CanUpdateMachine", "CanUpdateMachineSet", "UpdateMachine"))
	}).WithTimeout(soon).Should(Succeed())
	g.Expect(cluster.Err()).NotTo(HaveOccurred())
}

// testNoExtension sees that a manager that offers no updates in place has no ExtensionConfig, and works where Cluster API
// refuses any.
func testNoExtension(t *testing.T, admin client.Client) {
	g := NewWithT(t)
	g.Expect(checks(t.Context(), admin)).To(Succeed())
	all := &runtimev1.ExtensionConfigList{}
	g.Expect(admin.List(t.Context(), all)).To(Succeed())
	g.Expect(all.Items).To(BeEmpty())
	extension := &runtimev1.ExtensionConfig{}
	extension.Name, extension.Spec.ClientConfig.URL = "refused", "https://127.0.0.1:1"
	g.Expect(admin.Create(t.Context(), extension)).To(MatchError(ContainSubstring("RuntimeSDK")))
}

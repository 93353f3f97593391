package release_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
)

func TestBundleFor(t *testing.T) {
	g := NewWithT(t)
	r := &infrav1.ElementalKubernetesRelease{Spec: infrav1.ElementalKubernetesReleaseSpec{Version: "v1.36.3", Bundles: []infrav1.KubernetesBundle{
		{Architecture: "arm64", SHA256: "a", SizeBytes: 1, Sources: []string{"https://mirror/x"}},
		{Architecture: "amd64", SHA256: "b", SizeBytes: 2},
	}}}
	host := &infrav1.ElementalHost{}
	g.Expect(release.BundleFor(r, host)).To(BeNil(), "the architecture is unknown")
	host.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
	g.Expect(release.BundleFor(nil, host)).To(BeNil())
	g.Expect(release.BundleFor(r, host)).To(Equal(&infrav1.HostBundle{Version: "v1.36.3", SHA256: "b", SizeBytes: 2, Sources: []string{"manager"}}))
	host.Status.Inventory.Architecture = "arm64"
	g.Expect(release.BundleFor(r, host).Sources).To(Equal([]string{"https://mirror/x"}))
	host.Status.Inventory.Architecture = "riscv64"
	g.Expect(release.BundleFor(r, host)).To(BeNil())
}

func TestGet(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&infrav1.ElementalKubernetesRelease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "v1.36.3-k3s1"},
		Spec:       infrav1.ElementalKubernetesReleaseSpec{Version: "v1.36.3+k3s1"},
	}).Build()
	for version, found := range map[string]bool{"v1.36.3+k3s1": true, "v1.36.3-k3s1": false, "v1.36.4": false, "": false} {
		r, err := release.Get(t.Context(), c, "n", version)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r != nil).To(Equal(found), version)
	}
}

//go:build embedded

package release_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	version = "v0.1.99"
	image   = "registry.example.com/elemental-manager"
)

// TestRelease goes the way of a release from the sources to a management cluster.
func TestRelease(t *testing.T) {
	g := NewWithT(t)
	checkout := newSources(t)
	other := checkout.copied(t)
	folder, second, published := filepath.Join(t.TempDir(), version), filepath.Join(t.TempDir(), "other"), filepath.Join(t.TempDir(), version)

	checkout.make(t, "release", "RELEASE_DIR="+folder)
	checkout.make(t, "verify-release", "RELEASE_DIR="+folder)
	other.make(t, "release", "RELEASE_DIR="+second)
	sums, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS"))
	g.Expect(err).NotTo(HaveOccurred())
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Split(string(again), "\n")).To(Equal(strings.Split(string(sums), "\n")), "two checkouts make the same release")

	checkFiles(g, string(sums))
	checkAirGap(t, checkout, folder)

	registry := startRegistry(t, checkout)
	repository := registry + "/edge"
	out := checkout.make(t, "publish", "RELEASE_DIR="+folder, "PUBLISHED_DIR="+published, "REGISTRY="+repository)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	name, digest, found := strings.Cut(lines[len(lines)-1], "@")
	g.Expect(found).To(BeTrue(), out)
	g.Expect(name).To(Equal(repository + "/elemental-manager"))
	g.Expect(platforms(t, registry, "edge/elemental-manager", digest)).To(ConsistOf("linux/amd64", "linux/arm64"))
	g.Expect(platforms(t, registry, "edge/elemental-manager", version)).To(ConsistOf("linux/amd64", "linux/arm64"))
	g.Expect(install(t, checkout, published)).To(Equal(name + "@" + digest))
}

// checkFiles compares the names of a release's files with those that documents and scripts rely on.
func checkFiles(g *WithT, sums string) {
	var names []string
	for line := range strings.Lines(sums) {
		names = append(names, strings.Fields(line)[1])
	}
	want := []string{
		"cluster-api-provider-elemental_v0.1.99_airgap.tar",
		"cluster-template.yaml", "cluster-template-no-spare.yaml", "cluster-template-single-node.yaml", "cluster-template-tunnel.yaml", "cluster-template-vip.yaml",
		"cluster-template-topology.yaml", "clusterclass-elemental-kubeadm.yaml",
		"images.txt", "infrastructure-components.yaml", "infrastructure-components-namespaced.yaml",
		"machine-health-check.yaml", "manager-image_v0.1.99.oci.tar", "metadata.yaml", "network-policy.yaml",
		"registration-agent.yaml", "watched-namespace.yaml",
		"monitoring.yaml", "prometheus-rule.yaml", "alert-rules.yaml", "grafana-dashboard.json",
		"elemental-agent-0.1.99-1.x86_64.rpm", "elemental-agent-0.1.99-1.aarch64.rpm",
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		want = append(want, "elemental-agent_0.1.99_"+architecture+".deb")
		for _, command := range []string{"elemental-agent", "bundle", "kubectl-elemental"} {
			want = append(want, command+"_v0.1.99_linux_"+architecture+".tar.gz")
		}
		for _, program := range []string{"elemental-agent", "bundle", "kubectl-elemental", "manager"} {
			want = append(want, program+"_v0.1.99_linux_"+architecture+".cdx.json")
		}
	}
	for _, name := range want {
		g.Expect(names).To(ContainElement(name))
	}
}

// install has clusterctl render the published provider, applies it as users do, and returns the
// image of the Deployment.
func install(t *testing.T, s sources, published string) string {
	t.Helper()
	g := NewWithT(t)
	// clusterctl demands PROVIDER/VERSION/FILE at the end.
	repository := filepath.Join(t.TempDir(), "infrastructure-elemental")
	g.Expect(os.CopyFS(filepath.Join(repository, version), os.DirFS(published))).To(Succeed())
	config := filepath.Join(t.TempDir(), "clusterctl.yaml")
	text := "providers:\n  - name: elemental\n    type: InfrastructureProvider\n    url: file://" +
		filepath.Join(repository, version, "infrastructure-components.yaml") + "\n"
	g.Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	components := s.run(t, s.tool(t, "clusterctl"), "--config", config, "generate", "provider", "--infrastructure", "elemental:"+version)

	env := envtest.Start(t, envtest.Bare())
	c := client.WithFieldValidation(env.Client(t), metav1.FieldValidationStrict)
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(components), 4096); ; {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		// The test's API server has no cert-manager.
		if len(obj.Object) == 0 || obj.GroupVersionKind().Group == "cert-manager.io" {
			continue
		}
		err = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("test"))
		g.Expect(err).NotTo(HaveOccurred(), "%s %s", obj.GetKind(), obj.GetName())
	}
	deployment := &appsv1.Deployment{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "elemental-system", Name: "elemental-controller-manager"}, deployment)).To(Succeed())
	return deployment.Spec.Template.Spec.Containers[0].Image
}

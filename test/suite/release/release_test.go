//go:build embedded

package release_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
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
	checkAirGap(t, checkout, folder, image+":"+version)

	registry, storage := startRegistry(t, checkout)
	repository := registry + "/edge"
	out := checkout.make(t, "publish", "RELEASE_DIR="+folder, "PUBLISHED_DIR="+published, "REGISTRY="+repository)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	name, digest, found := strings.Cut(lines[len(lines)-1], "@")
	g.Expect(found).To(BeTrue(), out)
	g.Expect(name).To(Equal(repository + "/elemental-manager"))
	g.Expect(platforms(t, registry, "edge/elemental-manager", digest)).To(ConsistOf("linux/amd64", "linux/arm64"))
	g.Expect(platforms(t, registry, "edge/elemental-manager", version)).To(ConsistOf("linux/amd64", "linux/arm64"))
	g.Expect(install(t, checkout, published)).To(Equal(name + "@" + digest))

	further := filepath.Join(t.TempDir(), "kubernetes-images.txt")
	g.Expect(os.WriteFile(further, []byte("registry.k8s.io/coredns/coredns:v1.14.1\n"), 0o600)).To(Succeed())
	list, err := os.ReadFile(filepath.Join(folder, "images.txt"))
	g.Expect(err).NotTo(HaveOccurred())
	mirror(t, storage, string(list)+"registry.k8s.io/coredns/coredns:v1.14.1\n")
	checkout.make(t, "release-images", "RELEASE_DIR="+folder, "MIRROR="+registry+"/mirror", "IMAGES="+further)
	checkout.make(t, "publish", "RELEASE_DIR="+folder, "PUBLISHED_DIR="+published, "REGISTRY="+repository)
	g.Expect(platforms(t, registry, "edge/coredns", "v1.14.1")).To(ConsistOf("linux/amd64", "linux/arm64"))
	checkAirGap(t, checkout, folder, "registry.k8s.io/coredns/coredns:v1.14.1")
}

// checkFiles compares the names of a release's files with those that documents and scripts rely on.
func checkFiles(g *WithT, sums string) {
	var names []string
	for line := range strings.Lines(sums) {
		names = append(names, strings.Fields(line)[1])
	}
	want := []string{
		"cluster-api-provider-elemental_v0.1.99_airgap.tar",
		"cluster-template.yaml", "cluster-template-adopted.yaml", "cluster-template-no-spare.yaml", "cluster-template-single-node.yaml", "cluster-template-tunnel.yaml", "cluster-template-vip.yaml",
		"cluster-template-topology.yaml", "clusterclass-elemental-kubeadm.yaml",
		"images.txt", "infrastructure-components.yaml", "infrastructure-components-namespaced.yaml",
		"cluster-resource-set.yaml", "machine-health-check.yaml", "manager-image_v0.1.99.oci.tar", "metadata.yaml", "network-policy.yaml",
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

// install has clusterctl install the published provider with Cluster API and the stand-in for
// cert-manager into a cluster that has nothing, and returns the image of the provider's Deployment.
func install(t *testing.T, s sources, published string) string {
	t.Helper()
	g := NewWithT(t)
	env := envtest.Start(t, envtest.Bare())
	module := strings.Fields(s.run(t, "go", "-C", "test/tools/cluster-api", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "sigs.k8s.io/cluster-api"))
	r := repository.Repository{Root: t.TempDir(), Version: module[0], Module: module[1], Kubectl: s.tool(t, "kubectl")}
	g.Expect(r.Write(t.Context())).To(Succeed())
	own := repository.Elemental()
	g.Expect(os.CopyFS(filepath.Join(r.Root, own.Label, version), os.DirFS(published))).To(Succeed())
	config := filepath.Join(t.TempDir(), "clusterctl.yaml")
	text := "providers:\n" + r.Providers() + r.Entry(own, version) + r.CertManager()
	g.Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())

	s.environment = append(slices.Clone(s.environment), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off", "ELEMENTAL_AGENT_API_URL=https://elemental.example.com")
	s.run(t, s.tool(t, "clusterctl"), "--config", config, "init", "--kubeconfig", kubeconfig(t, env), "--infrastructure", own.Name)

	c := env.Client(t)
	installed := &unstructured.UnstructuredList{}
	installed.SetAPIVersion("clusterctl.cluster.x-k8s.io/v1alpha3")
	installed.SetKind("ProviderList")
	g.Expect(c.List(t.Context(), installed)).To(Succeed())
	versions := map[string]any{}
	for _, provider := range installed.Items {
		versions[provider.GetName()] = provider.Object["version"]
	}
	g.Expect(versions).To(Equal(map[string]any{
		"cluster-api": r.Version, "bootstrap-kubeadm": r.Version, "control-plane-kubeadm": r.Version, own.Label: version,
	}))
	deployment := &appsv1.Deployment{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "elemental-system", Name: "elemental-controller-manager"}, deployment)).To(Succeed())
	container := deployment.Spec.Template.Spec.Containers[0]
	g.Expect(container.Env).To(ContainElement(corev1.EnvVar{Name: "AGENT_API_URL", Value: "https://elemental.example.com"}))
	return container.Image
}

// kubeconfig writes an administrator's kubeconfig file of a test's API server.
func kubeconfig(t *testing.T, env *envtest.Environment) string {
	t.Helper()
	g := NewWithT(t)
	config := env.AddUser(t, "administrator", "system:masters")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const name = "test"
	g.Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)).To(Succeed())
	return file
}

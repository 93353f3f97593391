package manifests_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	crenvtest "sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// TestDocumentedObjects checks the objects of other projects in the documentation against the
// CRDs of these projects.
func TestDocumentedObjects(t *testing.T) {
	env := envtest.Start(t, envtest.Bare())
	for _, tc := range []struct {
		page, module string
		crds         []string
		// kinds are those of the page's objects.
		kinds []string
	}{
		{
			"agent-api.md", "sigs.k8s.io/gateway-api",
			[]string{"config/crd/standard/gateway.networking.k8s.io_gateways.yaml", "config/crd/standard/gateway.networking.k8s.io_tlsroutes.yaml"},
			[]string{"Gateway", "TLSRoute"},
		},
		{
			"install.md", "sigs.k8s.io/cluster-api-operator",
			[]string{"config/crd/bases/operator.cluster.x-k8s.io_infrastructureproviders.yaml"},
			[]string{"Secret", "InfrastructureProvider"},
		},
	} {
		t.Run(tc.page, func(t *testing.T) {
			g := NewWithT(t)
			folder := module(t, "test/tools/crds", tc.module)
			for _, crd := range tc.crds {
				install(t, env, filepath.Join(folder, crd))
			}
			c := env.Client(t)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elemental-system"}}
			g.Expect(c.Create(t.Context(), ns)).To(Or(Succeed(), MatchError(ContainSubstring("already exists"))))
			all := documented(t, tc.page)
			var kinds []string
			for _, obj := range all {
				kinds = append(kinds, obj.GetKind())
			}
			g.Expect(kinds).To(Equal(tc.kinds))
			g.Expect(apply(t.Context(), c, all)).To(Succeed())
		})
	}
}

// install installs a CRD.
func install(t *testing.T, env *envtest.Environment, file string) {
	t.Helper()
	// The default time is short for a busy machine.
	options := crenvtest.CRDInstallOptions{Paths: []string{file}, ErrorIfPathMissing: true, MaxTime: time.Minute}
	if _, err := crenvtest.InstallCRDs(env.Config, options); err != nil {
		t.Fatalf("installing %s: %v", filepath.Base(file), err)
	}
}

// Variables that the documentation gives to the Cluster API Operator are variables of the release.
func TestVariablesForTheOperator(t *testing.T) {
	g := NewWithT(t)
	components, err := os.ReadFile(filepath.Join(release(t), "infrastructure-components.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	variables, found, err := unstructured.NestedStringMap(documented(t, "install.md")[0].Object, "stringData")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeTrue())
	for name := range variables {
		g.Expect(string(components)).To(ContainSubstring("${"+name), "%s is no variable", name)
	}
}

// documented returns the objects in the blocks of YAML of a page.
func documented(t *testing.T, page string) (all []*unstructured.Unstructured) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", page))
	g.Expect(err).NotTo(HaveOccurred())
	for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(block[1]), 4096); ; {
			obj := &unstructured.Unstructured{}
			err := decoder.Decode(&obj.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			g.Expect(err).NotTo(HaveOccurred(), "%s: %s", page, block[1])
			all = append(all, obj)
		}
	}
	return all
}

// module returns the folder of a module that another module of this repository requires, by the
// other one's folder.
func module(t *testing.T, requiring, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", name)
	cmd.Dir = filepath.Join("..", "..", "..", requiring)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("downloading %s: %v\n%s", name, err, stderr.String())
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		t.Fatal(err)
	}
	return downloaded.Dir
}

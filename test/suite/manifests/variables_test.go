package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestVariablesAreDocumented compares the variables of the components, and their defaults, with the
// table of docs/install.md.
func TestVariablesAreDocumented(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(release(t), "infrastructure-components.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "install.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, table, found := strings.Cut(string(page), "| Variable | Default | Meaning |\n")
	g.Expect(found).To(BeTrue())
	table, _, _ = strings.Cut(table, "\n\n")

	code := regexp.MustCompile("`([^`]*)`")
	// The default is blank where the table describes it in words.
	documented := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		defaults := code.FindAllStringSubmatch(cells[2], -1)
		for n, name := range code.FindAllStringSubmatch(cells[1], -1) {
			documented[name[1]] = ""
			if n < len(defaults) {
				documented[name[1]] = defaults[n][1]
			}
		}
	}
	there := map[string]string{}
	for _, match := range variable.FindAllStringSubmatch(string(text), -1) {
		there[match[1]] = strings.Trim(match[3], `"`)
	}
	for name, value := range there {
		g.Expect(documented).To(HaveKey(name))
		if documented[name] != "" {
			g.Expect(value).To(Equal(documented[name]), name)
		}
	}
	for name := range documented {
		g.Expect(there).To(HaveKey(name), "the table has a variable that nothing reads")
	}
}

// TestVariablesOfTheClassAreDocumented compares the variables of the ClusterClass with the table of
// docs/clusterclass.md.
func TestVariablesOfTheClassAreDocumented(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "clusterclass.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, table, found := strings.Cut(string(page), "| Variable | Example | A change |\n|---|---|---|\n")
	g.Expect(found).To(BeTrue())
	table, _, _ = strings.Cut(table, "\n\n")
	var documented, there []string
	for line := range strings.Lines(table) {
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			documented = append(documented, name[1])
		}
	}
	class := objects(t, filepath.Join(release(t), "clusterclass-elemental-kubeadm.yaml"), map[string]string{"NAMESPACE": "n"})[0]
	variables, _, err := unstructured.NestedSlice(class.Object, "spec", "variables")
	g.Expect(err).NotTo(HaveOccurred())
	for _, variable := range variables {
		name, _, err := unstructured.NestedString(variable.(map[string]any), "name")
		g.Expect(err).NotTo(HaveOccurred())
		there = append(there, name)
	}
	g.Expect(documented).To(ConsistOf(there))
}

func TestSizeOfTheManager(t *testing.T) {
	file := filepath.Join(release(t), "infrastructure-components.yaml")
	for name, tt := range map[string]struct {
		values      map[string]string
		replicas    int32
		cpu, memory string
	}{
		"defaults": {nil, 1, "100m", "128Mi"},
		"set":      {map[string]string{"ELEMENTAL_REPLICAS": "2", "ELEMENTAL_CPU_REQUEST": "2", "ELEMENTAL_MEMORY_REQUEST": "1Gi"}, 2, "2", "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, obj := range objects(t, file, tt.values) {
				if obj.GetKind() != "Deployment" {
					continue
				}
				deployment := &appsv1.Deployment{}
				convert(g, obj, deployment)
				requests := deployment.Spec.Template.Spec.Containers[0].Resources.Requests
				g.Expect(*deployment.Spec.Replicas).To(Equal(tt.replicas))
				g.Expect([]string{requests.Cpu().String(), requests.Memory().String()}).To(Equal([]string{tt.cpu, tt.memory}))
				return
			}
			t.Error("there is no Deployment")
		})
	}
}

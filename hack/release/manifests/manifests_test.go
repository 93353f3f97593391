package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/manifests"
)

const deployment = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n        - image: IMAGE\n---\nkind: Service\nmetadata:\n  annotations:\n    placeholder: annotations\nspec:\n  type: ${TYPE:=ClusterIP}\n"

// checkout writes the sources of a release, and a program that prints components as kustomize does.
func checkout(t *testing.T, image string) (root string, kustomize []string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range map[string]string{
		"config/namespaced/watched_namespace.yaml": "kind: Role\n",
		"config/networkpolicy/network_policy.yaml": "kind: NetworkPolicy\n",
		"config/prometheus/monitoring.yaml":        "kind: ServiceMonitor\n",
		"config/prometheus/prometheus_rule.yaml":   "kind: PrometheusRule\n",
		"config/prometheus/rules.yaml":             "groups: []\n",
		"config/grafana/dashboard.json":            "{}\n",
		"metadata.yaml":                            "kind: Metadata\n",
		"templates/cluster-template.yaml":          "labels: {${LABELS:=}}\n",
		"templates/clusterclass-x.yaml":            "kind: ClusterClass\n",
		"components":                               strings.ReplaceAll(deployment, "IMAGE", image),
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, []string{"sh", "-c", "cat components"}
}

func TestWrite(t *testing.T) {
	root, kustomize := checkout(t, "controller:latest")
	folder, other := t.TempDir(), t.TempDir()
	const image, published = "registry.example.com/manager:v1.2.3", "localhost:5000/manager@sha256:0123"
	if err := manifests.Write(t.Context(), root, folder, image, kustomize); err != nil {
		t.Fatal(err)
	}
	if err := manifests.Check(folder, image); err != nil {
		t.Error(err)
	}
	if err := manifests.WithImage(folder, other, image, published); err != nil {
		t.Fatal(err)
	}
	if err := manifests.Check(other, published); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "infrastructure-components.yaml"))
	if err != nil || !strings.Contains(string(text), "  annotations: ${ELEMENTAL_AGENT_API_ANNOTATIONS:=null}\nspec:\n") {
		t.Errorf("got %v\n%s", err, text)
	}
	for _, folder := range []string{folder, other} {
		for _, name := range []string{
			"cluster-template.yaml", "clusterclass-x.yaml", "infrastructure-components-namespaced.yaml", "infrastructure-components.yaml",
			"metadata.yaml", "network-policy.yaml", "watched-namespace.yaml", "monitoring.yaml", "prometheus-rule.yaml", "alert-rules.yaml",
		} {
			if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	root, kustomize := checkout(t, "another:latest")
	if err := manifests.Write(t.Context(), root, t.TempDir(), "image:v1", kustomize); err == nil || !strings.Contains(err.Error(), `no "image: controller:latest"`) {
		t.Errorf("got error %v", err)
	}
	if err := manifests.Write(t.Context(), root, t.TempDir(), "image:v1", []string{"sh", "-c", "echo broken >&2; exit 1"}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got error %v", err)
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct{ file, text, want string }{
		"another image":  {"infrastructure-components.yaml", strings.ReplaceAll(deployment, "IMAGE", "other:v1"), `names the images ["other:v1"], not image:v1`},
		"no image":       {"infrastructure-components-namespaced.yaml", "kind: Service\n", "names the images []"},
		"not YAML":       {"metadata.yaml", "a: b: c\n", "reading metadata.yaml: "},
		"no components":  {"infrastructure-components.yaml", "", "infrastructure-components.yaml: no such file"},
		"all as it must": {"metadata.yaml", "kind: Metadata\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, kustomize := checkout(t, "controller:latest")
			folder := t.TempDir()
			if err := manifests.Write(t.Context(), root, folder, "image:v1", kustomize); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, tt.file)
			err := os.WriteFile(file, []byte(tt.text), 0o600)
			if tt.text == "" {
				err = os.Remove(file)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = manifests.Check(folder, "image:v1")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

package manifests_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	version = "v0.1.99"
	image   = "registry.example.com/elemental"
)

// env is the control plane for all tests of this package.
var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// release writes the files for clusterctl and returns their folder.
func release(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", filepath.Join("..", "..", ".."),
		"manifests", "MANIFESTS_DIR="+folder, "VERSION="+version, "IMAGE="+image)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running make manifests: %v\n%s", err, out)
	}
	return folder
}

// variable matches a variable of clusterctl, with its default if it has one.
var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)(:=([^}]*))?\}`)

// objects reads a file of a release and replaces its variables.
func objects(t *testing.T, file string, values map[string]string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	text = variable.ReplaceAllFunc(text, func(match []byte) []byte {
		parts := variable.FindSubmatch(match)
		if value, ok := values[string(parts[1])]; ok {
			return []byte(value)
		}
		g.Expect(parts[2]).NotTo(BeEmpty(), "%s has no default and no value", parts[1])
		return parts[3]
	})
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		g.Expect(err).NotTo(HaveOccurred(), "parsing %s", file)
		if len(obj.Object) > 0 {
			all = append(all, obj)
		}
	}
}

// apply applies objects as users do, with strict validation of fields.
func apply(ctx context.Context, c client.Client, all []*unstructured.Unstructured) error {
	c = client.WithFieldValidation(c, metav1.FieldValidationStrict)
	for _, obj := range all {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership)
		if err != nil {
			return err
		}
	}
	return nil
}

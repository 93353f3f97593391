package v1beta2_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// env is the control plane of all tests of this package.
var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// strictClient refuses unknown fields, as kubectl does.
func strictClient(t *testing.T) client.Client {
	t.Helper()
	return client.WithFieldValidation(env.Client(t), metav1.FieldValidationStrict)
}

// object makes an object of kind from the YAML of its spec, which may be blank.
func object(t *testing.T, kind, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(spec), &obj.Object); err != nil {
		t.Fatalf("parsing the test's YAML: %v", err)
	}
	if obj.Object == nil {
		obj.Object = map[string]any{}
	}
	obj.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	obj.SetNamespace(namespace)
	obj.SetGenerateName("test-")
	return obj
}

// creation is a case of what may be created.
type creation struct {
	name string
	// spec is YAML with the key spec.
	spec string
	// err is part of the refusal's message; blank if the object is accepted.
	err string
}

func testCreations(t *testing.T, kind string, cases []creation) {
	t.Helper()
	c, namespace := strictClient(t), env.Namespace(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			expect(t, c.Create(t.Context(), object(t, kind, namespace, tc.spec)), tc.err)
		})
	}
}

// change is a case of what may be changed.
type change struct {
	name string
	// from and to are YAML with the key spec.
	from, to string
	// err is part of the refusal's message; blank if the change is accepted.
	err string
}

func testChanges(t *testing.T, kind string, cases []change) {
	t.Helper()
	c, namespace := strictClient(t), env.Namespace(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			obj := object(t, kind, namespace, tc.from)
			NewWithT(t).Expect(c.Create(t.Context(), obj)).To(Succeed())
			obj.Object["spec"] = object(t, kind, namespace, tc.to).Object["spec"]
			expect(t, c.Update(t.Context(), obj), tc.err)
		})
	}
}

func expect(t *testing.T, err error, message string) {
	t.Helper()
	g := NewWithT(t)
	if message == "" {
		g.Expect(err).NotTo(HaveOccurred())
		return
	}
	g.Expect(err).To(MatchError(ContainSubstring(message)))
}

// long returns n times x.
func long(n int) string { return strings.Repeat("x", n) }

// many returns n entries of a YAML map in flow style.
func many(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf("key-%d: v", i)
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// create creates objects in order.
func create(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, obj := range objects {
		if err := c.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

//go:build embedded

package embedded

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// One refusal by a webhook of each provider, of what their schemas allow. They are active from the moment Start returns.
func testWebhooks(t *testing.T, admin client.Client) {
	g := NewWithT(t)
	ns := makeNamespace(t, admin).Name
	registration := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bad"}}
	registration.Spec.HostTemplate.NamePattern = badPattern
	g.Expect(admin.Create(t.Context(), registration)).To(MatchError(And(ContainSubstring("denied the request"), ContainSubstring("NoSuchField"))))

	for _, tc := range []struct {
		kind, want string
		spoil      func(map[string]any) error
	}{
		{"Cluster", "invalid CIDR address", func(obj map[string]any) error {
			return unstructured.SetNestedStringSlice(obj, []string{"nonsense"}, "spec", "clusterNetwork", "pods", "cidrBlocks")
		}},
		{"KubeadmConfigTemplate", "must be unique", func(obj map[string]any) error {
			file := map[string]any{"path": "/a", "content": "x"}
			return unstructured.SetNestedSlice(obj, []any{file, file}, "spec", "template", "spec", "files")
		}},
		{"KubeadmControlPlane", "cannot be an even number", func(obj map[string]any) error {
			return unstructured.SetNestedField(obj, int64(2), "spec", "replicas")
		}},
	} {
		obj := find(g, clusterTemplate(t, ns, "bad"), tc.kind)
		g.Expect(tc.spoil(obj.Object)).To(Succeed())
		g.Expect(admin.Create(t.Context(), obj)).To(MatchError(And(ContainSubstring("denied the request"), ContainSubstring(tc.want))))
	}
}

// clusterTemplate returns the objects that clusterctl makes of the default template.
func clusterTemplate(t *testing.T, namespace, name string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "templates", "cluster-template.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	values := map[string]string{
		"NAMESPACE": namespace, "CLUSTER_NAME": name, "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
	}
	text = regexp.MustCompile(`\$\{[A-Z0-9_]+(:=[^}]*)?\}`).ReplaceAllFunc(text, func(match []byte) []byte {
		name, _, _ := strings.Cut(strings.Trim(string(match), "${}"), ":=")
		if value, ok := values[name]; ok {
			return []byte(value)
		}
		_, fallback, ok := strings.Cut(strings.TrimSuffix(string(match), "}"), ":=")
		g.Expect(ok).To(BeTrue(), "%s has no value", name)
		return []byte(fallback)
	})
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, obj)
	}
}

func find(g Gomega, all []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	for _, obj := range all {
		if obj.GetKind() == kind {
			return obj
		}
	}
	g.Expect(all).To(ContainElement(HaveField("GetKind()", kind)))
	return nil
}

// The API server asks the manager for other versions of a kind.
func testConversion(t *testing.T, admin client.Client) {
	g := NewWithT(t)
	ns := makeNamespace(t, admin).Name
	for _, kind := range []string{"Cluster", "KubeadmControlPlane", "KubeadmConfigTemplate"} {
		obj := find(g, clusterTemplate(t, ns, "converted"), kind)
		g.Expect(unstructured.SetNestedField(obj.Object, true, "spec", "paused")).To(Succeed())
		if kind != "Cluster" {
			unstructured.RemoveNestedField(obj.Object, "spec", "paused")
		}
		g.Expect(admin.Create(t.Context(), obj)).To(Succeed(), kind)
		old := &unstructured.Unstructured{}
		old.SetGroupVersionKind(obj.GroupVersionKind().GroupKind().WithVersion("v1beta1"))
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(obj), old)).To(Succeed(), kind)
		g.Expect(old.GetAPIVersion()).To(HaveSuffix("/v1beta1"))
		if kind == "Cluster" {
			version, _, err := unstructured.NestedString(old.Object, "spec", "infrastructureRef", "apiVersion")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(version).To(Equal(infrav1.GroupVersion.String()), "v1beta1 has the version in references")
		}
	}
}

// What Cluster API leaves to kube-controller-manager.
func testGarbage(t *testing.T, admin client.Client) {
	g := NewWithT(t)
	ns := makeNamespace(t, admin)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "owner"}}
	g.Expect(admin.Create(t.Context(), owner)).To(Succeed())
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "dependent", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	g.Expect(admin.Create(t.Context(), dependent)).To(Succeed())
	g.Expect(admin.Delete(t.Context(), owner)).To(Succeed())
	eventuallyGone(t, admin, dependent)
	g.Expect(admin.Create(t.Context(), &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "left"}})).To(Succeed())
	g.Expect(admin.Delete(t.Context(), ns)).To(Succeed())
	eventuallyGone(t, admin, ns)
}

func eventuallyGone(t *testing.T, admin client.Client, obj client.Object) {
	t.Helper()
	NewWithT(t).Eventually(func() error { return admin.Get(t.Context(), client.ObjectKeyFromObject(obj), obj) }).
		WithTimeout(soon).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
}

// A cluster of the default template comes as far as it can without hosts, by the work of all managers; with an endpoint
// of the user's choice it comes to machines that wait for hosts.
func testTemplate(t *testing.T, admin client.Client) {
	g := NewWithT(t)
	ns := makeNamespace(t, admin).Name
	for _, name := range []string{"blank", "given"} {
		for _, obj := range clusterTemplate(t, ns, name) {
			if name == "given" && obj.GetKind() == "ElementalCluster" {
				g.Expect(unstructured.SetNestedField(obj.Object, "10.0.0.1", "spec", "controlPlaneEndpoint", "host")).To(Succeed())
			}
			g.Expect(admin.Create(t.Context(), obj)).To(Succeed())
		}
	}
	get := func(name string, obj client.Object) error {
		return admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, obj)
	}
	reason := func(conditions []metav1.Condition, kind string) string {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			return string(c.Status) + " " + c.Reason
		}
		return ""
	}
	g.Eventually(func(g Gomega) {
		cluster := &clusterv1.Cluster{}
		g.Expect(get("blank", cluster)).To(Succeed())
		g.Expect(reason(cluster.Status.Conditions, clusterv1.ClusterInfrastructureReadyCondition)).To(Equal("False " + infrav1.NoHostReason))
		g.Expect(cluster.Spec.ControlPlaneEndpoint.IsZero()).To(BeTrue())
	}).WithTimeout(soon).Should(Succeed())
	g.Eventually(func(g Gomega) {
		cluster, control := &clusterv1.Cluster{}, &controlplanev1.KubeadmControlPlane{}
		g.Expect(get("given", cluster)).To(Succeed())
		g.Expect(cluster.Spec.ControlPlaneEndpoint).To(Equal(clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}))
		g.Expect(get("given-control-plane", control)).To(Succeed())
		machines := &clusterv1.MachineList{}
		g.Expect(admin.List(t.Context(), machines, client.InNamespace(ns), client.MatchingLabels{clusterv1.ClusterNameLabel: "given"})).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(3), "one control plane at a time and two workers")
		waiting := 0
		for i := range machines.Items {
			machine := &infrav1.ElementalMachine{}
			g.Expect(get(machines.Items[i].Spec.InfrastructureRef.Name, machine)).To(Succeed())
			if reason(machine.Status.Conditions, infrav1.ReadyCondition) == "False "+infrav1.NoHostReason {
				g.Expect(machines.Items[i].Spec.Bootstrap.DataSecretName).NotTo(BeNil())
				waiting++
			}
		}
		g.Expect(waiting).To(Equal(1), "the control plane waits for a host, the workers for the control plane")
	}).WithTimeout(soon).Should(Succeed())
}

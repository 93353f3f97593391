package manifests_test

import (
	"maps"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestNetworkPlugin checks that the ClusterResourceSet of the release selects the clusters of all
// flavors that are made with its network plugin, and no others.
func TestNetworkPlugin(t *testing.T) {
	g := NewWithT(t)
	const crd = "core/config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesets.yaml"
	install(t, env, filepath.Join(module(t, ".", "sigs.k8s.io/cluster-api"), crd))
	c, ns, folder := env.Client(t), env.Namespace(t), release(t)
	values := map[string]string{
		"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3", "CONTROL_PLANE_ENDPOINT_IP": "192.0.2.9",
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
	}
	with := maps.Clone(values)
	with["NETWORK_PLUGIN"] = "flannel"
	sets := objects(t, filepath.Join(folder, "cluster-resource-set.yaml"), with)
	g.Expect(apply(t.Context(), c, sets)).To(Succeed())
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(sets[0].GroupVersionKind())
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "flannel"}, set)).To(Succeed())
	resources, _, err := unstructured.NestedSlice(set.Object, "spec", "resources")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resources).To(Equal([]any{map[string]any{"kind": "ConfigMap", "name": "flannel"}}))
	chosen := selector(g, set)

	files, err := filepath.Glob(filepath.Join(folder, "cluster-template*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		g.Expect(chosen.Matches(clusterLabels(g, objects(t, file, with)))).To(BeTrue(), file)
		g.Expect(chosen.Matches(clusterLabels(g, objects(t, file, values)))).To(BeFalse(), file)
	}
}

// selector returns the selector of a ClusterResourceSet.
func selector(g *WithT, set *unstructured.Unstructured) labels.Selector {
	fields, _, err := unstructured.NestedMap(set.Object, "spec", "clusterSelector")
	g.Expect(err).NotTo(HaveOccurred())
	selects := &metav1.LabelSelector{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selects)).To(Succeed())
	found, err := metav1.LabelSelectorAsSelector(selects)
	g.Expect(err).NotTo(HaveOccurred())
	return found
}

// clusterLabels returns the labels of the Cluster among objects.
func clusterLabels(g *WithT, all []*unstructured.Unstructured) labels.Set {
	for _, obj := range all {
		if obj.GroupVersionKind() == clusterv1.GroupVersion.WithKind("Cluster") {
			return obj.GetLabels()
		}
	}
	g.Expect(all).To(BeEmpty(), "there is no Cluster")
	return nil
}

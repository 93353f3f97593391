//go:build embedded

package topology_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// testGit applies what docs/gitops.md puts into git again and again, as Flux and Argo CD do. Nothing changes but for a
// reason: neither a field of the provider nor the generation of an object.
func (r *rig) testGit() {
	for flavor, variables := range map[string][]string{
		"":       {"HEALTH_CHECKS=true"},
		"vip":    {"CONTROL_PLANE_ENDPOINT_IP=" + vip},
		"tunnel": nil,
	} {
		r.t.Run("flavor "+flavor, func(t *testing.T) { r.in(t).testGitOf(flavor, variables) })
	}
}

func (r *rig) testGitOf(flavor string, variables []string) {
	ns := r.namespace()
	git := append(r.generate(ns, "c", flavor, variables...), hostsInGit(ns)...)
	r.apply(git)
	r.Eventually(func(g Gomega) {
		infra, host := &infrav1.ElementalCluster{}, &infrav1.ElementalHost{}
		g.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, infra)).To(Succeed())
		g.Expect(infra.Status.Conditions).NotTo(BeEmpty())
		if flavor == "tunnel" {
			cluster := &clusterv1.Cluster{}
			g.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, cluster)).To(Succeed())
			g.Expect(infra.Spec.ControlPlaneEndpoint.Host).NotTo(BeEmpty(), "the provider has written the endpoint")
			g.Expect(cluster.Spec.ControlPlaneEndpoint.Host).To(Equal(infra.Spec.ControlPlaneEndpoint.Host), "Cluster API has read it")
		}
		g.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: "rack-7"}, host)).To(Succeed())
		g.Expect(host.Spec.MaintenanceEndedAt.IsZero()).To(BeFalse(), "the maintenance has ended")
	}).Should(Succeed())

	// Controllers complete new objects, as with references to their owners and with finalizers.
	var before map[string]any
	r.Eventually(func(g Gomega) {
		before = r.desired(git)
		r.apply(git)
		g.Expect(cmp.Diff(before, r.desired(git))).To(BeEmpty())
	}).Should(Succeed())
	for range 5 {
		r.apply(git)
		r.Expect(cmp.Diff(before, r.desired(git))).To(BeEmpty())
	}
}

// hostsInGit are a host that is declared in advance, with a maintenance that has ended, and a registration.
func hostsInGit(ns string) []*unstructured.Unstructured {
	host := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "rack-7", "namespace": ns, "labels": map[string]any{"rack": "7"}},
		"spec": map[string]any{
			"identity":    map[string]any{"match": map[string]any{"serialNumber": "S-7"}},
			"cordon":      map[string]any{"reason": "new disk"},
			"maintenance": map[string]any{"reason": "new disk", "until": time.Now().UTC().Format(time.RFC3339)},
		},
	}}
	host.SetGroupVersionKind(infrav1.GroupVersion.WithKind("ElementalHost"))
	registration := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "shops", "namespace": ns},
		"spec":     map[string]any{"hostTemplate": map[string]any{"labels": map[string]any{"site": "berlin"}}},
	}}
	registration.SetGroupVersionKind(infrav1.GroupVersion.WithKind("ElementalRegistration"))
	return []*unstructured.Unstructured{host, registration}
}

func (r *rig) apply(all []*unstructured.Unstructured) {
	r.t.Helper()
	for _, obj := range all {
		err := r.admin.Apply(r.t.Context(), client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), client.FieldOwner("git"), client.ForceOwnership)
		r.Expect(err).NotTo(HaveOccurred(), "%s %s", obj.GetKind(), obj.GetName())
	}
}

// desired returns what the API server has of objects, by kind and name, without what controllers report.
func (r *rig) desired(all []*unstructured.Unstructured) map[string]any {
	r.t.Helper()
	now := map[string]any{}
	for _, obj := range all {
		read := &unstructured.Unstructured{}
		read.SetGroupVersionKind(obj.GroupVersionKind())
		r.Expect(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(obj), read)).To(Succeed())
		now[obj.GetKind()+" "+obj.GetName()] = map[string]any{
			"generation": read.GetGeneration(), "labels": read.GetLabels(), "annotations": read.GetAnnotations(), "spec": read.Object["spec"],
		}
	}
	return now
}

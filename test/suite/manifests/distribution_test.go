package manifests_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The flavors "rke2" and "k3s" are the default template with the kinds of other providers. The API server validates all
// kinds but these, whose definitions can't be had as Go modules.
func TestTemplatesOfDistributions(t *testing.T) {
	for flavor, tc := range map[string]struct {
		version, controlPlane, bootstrap string
		// infrastructure is where the control plane names its template, and cloud where it says that no cloud controller
		// sets the providerID of Nodes, with what.
		infrastructure, cloud []string
		disabled              any
	}{
		"rke2": {
			version: "v1.36.3+rke2r1", controlPlane: "RKE2ControlPlane", bootstrap: "RKE2ConfigTemplate",
			infrastructure: []string{"spec", "machineTemplate", "spec", "infrastructureRef"},
			cloud:          []string{"spec", "serverConfig", "disableComponents", "kubernetesComponents"}, disabled: []any{"cloudController"},
		},
		"k3s": {
			version: "v1.36.3+k3s1", controlPlane: "KThreesControlPlane", bootstrap: "KThreesConfigTemplate",
			infrastructure: []string{"spec", "machineTemplate", "infrastructureRef"},
			cloud:          []string{"spec", "kthreesConfigSpec", "serverConfig", "disableCloudController"}, disabled: true,
		},
	} {
		t.Run(flavor, func(t *testing.T) {
			g := NewWithT(t)
			c, ns := env.Client(t), env.Namespace(t)
			values := map[string]string{
				"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": tc.version, "CONTROL_PLANE_HOST_LABELS": "role: control-plane",
				"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
			}
			all := objects(t, filepath.Join(release(t), "cluster-template-"+flavor+".yaml"), values)
			defaults := objects(t, filepath.Join(release(t), "cluster-template.yaml"), values)
			g.Expect(all).To(HaveLen(len(defaults)))
			var validated []*unstructured.Unstructured
			for i, obj := range all {
				g.Expect(obj.GetName()).To(Equal(defaults[i].GetName()), "the default template has the same objects")
				switch obj.GetKind() {
				case tc.controlPlane:
					g.Expect(field(g, obj, tc.infrastructure...)).To(HaveKeyWithValue("name", "c-control-plane"))
					g.Expect(field(g, obj, tc.cloud...)).To(Equal(tc.disabled))
					g.Expect(field(g, obj, "spec", "version")).To(Equal(tc.version))
				case tc.bootstrap:
				case "ElementalMachineTemplate", "ElementalCluster":
					g.Expect(obj.Object["spec"]).To(Equal(defaults[i].Object["spec"]))
					validated = append(validated, obj)
				default:
					validated = append(validated, obj)
				}
			}
			g.Expect(validated).To(HaveLen(len(all) - 2))
			g.Expect(apply(t.Context(), c, validated)).To(Succeed())

			cluster, workers := &clusterv1.Cluster{}, &clusterv1.MachineDeployment{}
			convert(g, all[0], cluster)
			g.Expect(cluster.Spec.ControlPlaneRef).To(Equal(clusterv1.ContractVersionedObjectReference{
				APIGroup: "controlplane.cluster.x-k8s.io", Kind: tc.controlPlane, Name: "c-control-plane",
			}))
			convert(g, all[4], workers)
			g.Expect(workers.Spec.Template.Spec.Bootstrap.ConfigRef).To(Equal(clusterv1.ContractVersionedObjectReference{
				APIGroup: "bootstrap.cluster.x-k8s.io", Kind: tc.bootstrap, Name: "c-md-0",
			}))
		})
	}
}

// field returns a field of an object, which must have it.
func field(g Gomega, obj *unstructured.Unstructured, path ...string) any {
	value, found, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeTrue(), "%v", path)
	return value
}

package manifests_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestClusterTemplate(t *testing.T) {
	file := filepath.Join(release(t), "cluster-template.yaml")
	for name, tc := range map[string]struct {
		values map[string]string
		// labels are the labels of control-plane hosts.
		labels map[string]string
	}{
		"defaults": {labels: map[string]string{}},
		"labels": {
			values: map[string]string{"CONTROL_PLANE_HOST_LABELS": "role: control-plane, zone: a", "WORKER_HOST_LABELS": `"role":"worker"`},
			labels: map[string]string{"role": "control-plane", "zone": "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, ns := env.Client(t), env.Namespace(t)
			values := map[string]string{
				"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3",
				"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
			}
			maps.Copy(values, tc.values)
			all := objects(t, file, values)
			g.Expect(apply(t.Context(), c, all)).To(Succeed())

			cluster := &clusterv1.Cluster{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, cluster)).To(Succeed())
			g.Expect(cluster.Spec.ControlPlaneEndpoint.IsZero()).To(BeTrue(), "the provider sets it")
			expectReferences(g, all, cluster)

			template := &infrav1.ElementalMachineTemplate{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c-control-plane"}, template)).To(Succeed())
			g.Expect(map[string]string(template.Spec.Template.Spec.HostSelector.MatchLabels)).To(BeEquivalentTo(tc.labels))

			g.Expect(apply(t.Context(), c, all)).To(Succeed(), "applying twice")
			again := &infrav1.ElementalMachineTemplate{}
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(template), again)).To(Succeed())
			g.Expect(again.Generation).To(Equal(template.Generation))
		})
	}
}

// The flavor "vip" is the default template with a virtual IP address.
func TestVIPTemplate(t *testing.T) {
	g := NewWithT(t)
	c, ns := env.Client(t), env.Namespace(t)
	values := map[string]string{
		"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2", "CONTROL_PLANE_ENDPOINT_IP": "2001:db8::100",
	}
	all := objects(t, filepath.Join(release(t), "cluster-template-vip.yaml"), values)
	g.Expect(apply(t.Context(), c, all)).To(Succeed())
	infra := &infrav1.ElementalCluster{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, infra)).To(Succeed())
	g.Expect(infra.Spec.ControlPlaneEndpoint.Host).To(BeEmpty(), "the provider sets it")
	g.Expect(infra.Spec.ControlPlaneEndpointPolicy.Type).To(Equal(infrav1.EndpointTypeVIP))
	g.Expect(infra.Spec.ControlPlaneEndpointPolicy.VIP.Address).To(Equal("2001:db8::100"))

	expectDefaults(t, g, all, values)
}

// The flavor "tunnel" is the default template with an endpoint of type Tunnel. kubeadm takes
// the endpoint's name into the certificates, and API servers keep their own port.
func TestTunnelTemplate(t *testing.T) {
	g := NewWithT(t)
	c, ns := env.Client(t), env.Namespace(t)
	values := map[string]string{
		"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
	}
	all := objects(t, filepath.Join(release(t), "cluster-template-tunnel.yaml"), values)
	g.Expect(apply(t.Context(), c, all)).To(Succeed())
	infra := &infrav1.ElementalCluster{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, infra)).To(Succeed())
	g.Expect(infra.Spec.ControlPlaneEndpoint).To(BeZero(), "the provider sets it")
	g.Expect(infra.Spec.ControlPlaneEndpointPolicy).To(Equal(infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel}))
	expectDefaults(t, g, all, values)
}

// The flavor "no-spare" is the default template with rollouts that need no spare host.
func TestNoSpareTemplate(t *testing.T) {
	g := NewWithT(t)
	c, ns := env.Client(t), env.Namespace(t)
	values := map[string]string{
		"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "2",
	}
	all := objects(t, filepath.Join(release(t), "cluster-template-no-spare.yaml"), values)
	g.Expect(apply(t.Context(), c, all)).To(Succeed())
	infra := &infrav1.ElementalCluster{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, infra)).To(Succeed())
	g.Expect(infra.Spec).To(Equal(infrav1.ElementalClusterSpec{InPlace: infrav1.InPlace{Mode: infrav1.InPlacePreferred}}))

	control := &controlplanev1.KubeadmControlPlane{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c-control-plane"}, control)).To(Succeed())
	g.Expect(control.Spec.Rollout.Strategy.RollingUpdate.MaxSurge).To(HaveValue(Equal(intstr.FromInt32(0))))
	workers := &clusterv1.MachineDeployment{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c-md-0"}, workers)).To(Succeed())
	g.Expect(workers.Spec.Rollout.Strategy.RollingUpdate.MaxSurge).To(HaveValue(Equal(intstr.FromInt32(0))))
	g.Expect(workers.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable).To(HaveValue(Equal(intstr.FromInt32(1))))

	for _, obj := range all {
		unstructured.RemoveNestedField(obj.Object, "spec", "rollout")
	}
	expectDefaults(t, g, all, values)
}

// The flavor "single-node" is the control plane of the default template, with one replica that
// takes all Pods.
func TestSingleNodeTemplate(t *testing.T) {
	g := NewWithT(t)
	c, ns := env.Client(t), env.Namespace(t)
	values := map[string]string{
		"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3", "CONTROL_PLANE_HOST_LABELS": "site: a",
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "0",
	}
	all := objects(t, filepath.Join(release(t), "cluster-template-single-node.yaml"), values)
	g.Expect(apply(t.Context(), c, all)).To(Succeed())
	infra := &infrav1.ElementalCluster{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, infra)).To(Succeed())
	g.Expect(infra.Spec).To(Equal(infrav1.ElementalClusterSpec{InPlace: infrav1.InPlace{Mode: infrav1.InPlaceRequired}}))

	control := &controlplanev1.KubeadmControlPlane{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c-control-plane"}, control)).To(Succeed())
	config := control.Spec.KubeadmConfigSpec
	g.Expect(config.InitConfiguration.NodeRegistration.Taints).To(HaveValue(BeEmpty()), "kubeadm taints if there is no list")
	g.Expect(config.JoinConfiguration.NodeRegistration.Taints).To(HaveValue(BeEmpty()), "the Node of a replacement takes Pods too")

	for _, obj := range all {
		for _, phase := range []string{"initConfiguration", "joinConfiguration"} {
			unstructured.RemoveNestedField(obj.Object, "spec", "kubeadmConfigSpec", phase, "nodeRegistration", "taints")
		}
	}
	defaults := objects(t, filepath.Join(release(t), "cluster-template.yaml"), values)
	expectSpecs(g, all, slices.DeleteFunc(defaults, func(obj *unstructured.Unstructured) bool {
		return strings.HasSuffix(obj.GetName(), "-md-0")
	}))
}

// The flavor "adopted" is the default template with one control-plane host, for a cluster that runs
// already. Its hosts are held until somebody removes the annotation.
func TestAdoptedTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint string
		want     infrav1.ControlPlaneEndpoint
	}{
		"endpoint of the host": {},
		"endpoint of its own":  {"host: shop.example.com, port: 443", infrav1.ControlPlaneEndpoint{Host: "shop.example.com", Port: 443}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, ns := env.Client(t), env.Namespace(t)
			values := map[string]string{
				"CLUSTER_NAME": "c", "NAMESPACE": ns, "KUBERNETES_VERSION": "v1.36.3", "CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "2",
			}
			if tc.endpoint != "" {
				values["CONTROL_PLANE_ENDPOINT"] = tc.endpoint
			}
			all := objects(t, filepath.Join(release(t), "cluster-template-adopted.yaml"), values)
			g.Expect(apply(t.Context(), c, all)).To(Succeed())
			infra := &infrav1.ElementalCluster{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, infra)).To(Succeed())
			g.Expect(infra.IsAdopted()).To(BeTrue())
			g.Expect(infra.Spec.ControlPlaneEndpoint).To(Equal(tc.want))
			cluster := &clusterv1.Cluster{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, cluster)).To(Succeed())
			g.Expect(cluster.Annotations).To(HaveKey(infrav1.PreventResetAnnotation))
			expectDefaults(t, g, all, values)
		})
	}
}

// expectDefaults checks that a flavor differs from the default template in the
// ElementalCluster only.
func expectDefaults(t *testing.T, g Gomega, all []*unstructured.Unstructured, values map[string]string) {
	t.Helper()
	expectSpecs(g, all, objects(t, filepath.Join(release(t), "cluster-template.yaml"), values))
}

func expectSpecs(g Gomega, all, want []*unstructured.Unstructured) {
	g.Expect(all).To(HaveLen(len(want)))
	for i := range want {
		if all[i].GetKind() != "ElementalCluster" {
			g.Expect(all[i].Object["spec"]).To(Equal(want[i].Object["spec"]), all[i].GetKind())
		}
	}
}

// expectReferences checks that references name objects of the template. Cluster API would report
// wrong ones only during reconciliation.
func expectReferences(g Gomega, all []*unstructured.Unstructured, cluster *clusterv1.Cluster) {
	refs := []clusterv1.ContractVersionedObjectReference{cluster.Spec.InfrastructureRef, cluster.Spec.ControlPlaneRef}
	for _, obj := range all {
		switch obj.GetKind() {
		case "KubeadmControlPlane":
			kcp := &controlplanev1.KubeadmControlPlane{}
			convert(g, obj, kcp)
			refs = append(refs, kcp.Spec.MachineTemplate.Spec.InfrastructureRef)
			g.Expect(kcp.Spec.MachineTemplate.Spec.Deletion.NodeDeletionTimeoutSeconds).To(HaveValue(BeZero()), "Cluster API would count it from the deletion of the Machine")
		case "MachineDeployment":
			md := &clusterv1.MachineDeployment{}
			convert(g, obj, md)
			refs = append(refs, md.Spec.Template.Spec.InfrastructureRef, md.Spec.Template.Spec.Bootstrap.ConfigRef)
			g.Expect(md.Spec.Template.Spec.Deletion.NodeDeletionTimeoutSeconds).To(HaveValue(BeZero()), "Cluster API would count it from the deletion of the Machine")
		}
	}
	g.Expect(refs).To(HaveLen(5))
	for _, ref := range refs {
		g.Expect(all).To(ContainElement(WithTransform(func(obj *unstructured.Unstructured) clusterv1.ContractVersionedObjectReference {
			return clusterv1.ContractVersionedObjectReference{APIGroup: obj.GroupVersionKind().Group, Kind: obj.GetKind(), Name: obj.GetName()}
		}, Equal(ref))))
	}
}

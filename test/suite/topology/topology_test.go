//go:build embedded

package topology_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const vip = "192.0.2.100"

// TestTopology uses one management cluster for everything, as a start takes some seconds.
func TestTopology(t *testing.T) {
	r := newRig(t)
	t.Run("Flavors", func(t *testing.T) { r.in(t).testFlavors() })
	t.Run("Variables", func(t *testing.T) { r.in(t).testVariables() })
	t.Run("VIP", func(t *testing.T) { r.in(t).testVIP() })
	t.Run("Class", func(t *testing.T) { r.in(t).testClass() })
	t.Run("Git", func(t *testing.T) { r.in(t).testGit() })
}

// Every flavor of the release is valid for the webhooks of all providers.
func (r *rig) testFlavors() {
	files, err := filepath.Glob(filepath.Join(root(), "templates", "cluster-template*.yaml"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(len(files)).To(BeNumerically(">=", 6))
	for _, file := range files {
		flavor := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "cluster-template"), ".yaml"), "-")
		switch flavor {
		case "topology":
			continue // a Cluster is refused while its class is missing: see testClass
		case "k3s", "rke2":
			continue // their providers are no Go modules that the lab can build: see test/suite/manifests
		}
		r.t.Run("flavor "+flavor, func(t *testing.T) {
			r := r.in(t)
			r.create(r.generate(r.namespace(), "c", flavor, "CONTROL_PLANE_ENDPOINT_IP="+vip), client.DryRunAll)
		})
	}
}

// Values that the class does not allow are refused before anything is made of them.
func (r *rig) testVariables() {
	ns := r.namespace()
	all := r.generate(ns, "c", "topology")
	r.create(all[:len(all)-1])
	r.eventuallyReconciled(ns, "elemental-kubeadm")
	for name, tt := range map[string]struct{ variables, want string }{
		"VIP without an address":   {`[{"name":"endpoint","value":{"type":"VIP"}}]`, "type VIP needs an address"},
		"an address without VIP":   {`[{"name":"endpoint","value":{"address":"192.0.2.1"}}]`, "other types must not have one"},
		"an unknown type":          {`[{"name":"endpoint","value":{"type":"DNS"}}]`, `supported values: "Host", "VIP", "Tunnel"`},
		"an unknown field":         {`[{"name":"workerHosts","value":{"labels":{}}}]`, `"labels" field(s) are not specified`},
		"an unknown variable":      {`[{"name":"vip","value":"192.0.2.1"}]`, "variable is not defined"},
		"a mode that is not there": {`[{"name":"inPlaceMode","value":"Always"}]`, `supported values: "Off", "Preferred", "Required"`},
	} {
		r.t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := all[len(all)-1].DeepCopy()
			var variables []any
			g.Expect(json.Unmarshal([]byte(tt.variables), &variables)).To(Succeed())
			g.Expect(unstructured.SetNestedSlice(cluster.Object, variables, "spec", "topology", "variables")).To(Succeed())
			g.Expect(r.admin.Create(t.Context(), cluster, client.DryRunAll)).To(MatchError(ContainSubstring(tt.want)))
		})
	}
}

// An address reaches the ElementalCluster, and the provider's checks of it.
func (r *rig) testVIP() {
	ns := r.namespace()
	all := r.generate(ns, "c", "topology", "CONTROL_PLANE_ENDPOINT_TYPE=VIP", "CONTROL_PLANE_ENDPOINT_IP="+vip)
	r.create(all[:len(all)-1])
	r.eventuallyReconciled(ns, "elemental-kubeadm")
	r.create(all[len(all)-1:])
	r.Eventually(func(g Gomega) {
		infra := r.read(g, ns).infra
		g.Expect(infra.Spec.ControlPlaneEndpointPolicy.Type).To(Equal(infrav1.EndpointTypeVIP))
		g.Expect(infra.Spec.ControlPlaneEndpointPolicy.VIP.Address).To(Equal(vip))
		g.Expect(meta.FindStatusCondition(infra.Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)).NotTo(BeNil())
	}).Should(Succeed())
}

// eventuallyReconciled waits until the webhooks accept clusters of a class.
func (r *rig) eventuallyReconciled(namespace, class string) {
	r.t.Helper()
	r.Eventually(func(g Gomega) {
		c := &clusterv1.ClusterClass{}
		g.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: class}, c)).To(Succeed())
		g.Expect(c.Status.ObservedGeneration).To(Equal(c.Generation))
		g.Expect(meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ClusterClassVariablesReadyCondition)).To(BeTrue())
	}).Should(Succeed())
}

// made are the objects that the topology controller has made for a cluster.
type made struct {
	cluster *clusterv1.Cluster
	infra   *infrav1.ElementalCluster
	control *controlplanev1.KubeadmControlPlane
	workers *clusterv1.MachineDeployment
}

// read reads the objects of cluster c; references must be set.
func (r *rig) read(g Gomega, ns string) made {
	m := made{&clusterv1.Cluster{}, &infrav1.ElementalCluster{}, &controlplanev1.KubeadmControlPlane{}, nil}
	ctx := r.t.Context()
	g.Expect(r.admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "c"}, m.cluster)).To(Succeed())
	g.Expect(meta.FindStatusCondition(m.cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)).To(
		HaveValue(HaveField("ObservedGeneration", m.cluster.Generation)))
	g.Expect(r.admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: m.cluster.Spec.InfrastructureRef.Name}, m.infra)).To(Succeed())
	g.Expect(r.admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: m.cluster.Spec.ControlPlaneRef.Name}, m.control)).To(Succeed())
	list := &clusterv1.MachineDeploymentList{}
	g.Expect(r.admin.List(ctx, list, client.InNamespace(ns))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	m.workers = &list.Items[0]
	return m
}

// expectKept expects that the provider's fields are as they were, and that no Machine is replaced.
func (m made) expectKept(g Gomega, before made) {
	g.Expect(m.infra.UID).To(Equal(before.infra.UID))
	g.Expect(m.infra.Spec.ControlPlaneEndpoint).To(Equal(before.infra.Spec.ControlPlaneEndpoint))
	g.Expect(m.cluster.Spec.ControlPlaneEndpoint).To(Equal(before.cluster.Spec.ControlPlaneEndpoint))
	m.expectOwners(g)
	g.Expect(m.control.UID).To(Equal(before.control.UID))
	g.Expect(m.control.Spec.MachineTemplate.Spec.InfrastructureRef).To(Equal(before.control.Spec.MachineTemplate.Spec.InfrastructureRef))
}

// change changes the Cluster's topology.
func (r *rig) change(ns string, change func(*clusterv1.Topology)) {
	r.t.Helper()
	cluster := &clusterv1.Cluster{}
	r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, cluster)).To(Succeed())
	old := cluster.DeepCopy()
	change(&cluster.Spec.Topology)
	r.Expect(r.admin.Patch(r.t.Context(), cluster, client.MergeFrom(old))).To(Succeed())
}

// touch makes the topology controller compute and apply everything once more, and returns what is
// there then.
func (r *rig) touch(ns, value string) made {
	r.t.Helper()
	r.change(ns, func(topology *clusterv1.Topology) {
		topology.ControlPlane.Metadata.Annotations = map[string]string{"touched": value}
		topology.Workers.MachineDeployments[0].Metadata.Annotations = map[string]string{"touched": value}
	})
	var after made
	r.Eventually(func(g Gomega) {
		after = r.read(g, ns)
		g.Expect(after.control.Annotations).To(HaveKeyWithValue("touched", value))
		g.Expect(after.workers.Annotations).To(HaveKeyWithValue("touched", value))
	}).Should(Succeed())
	return after
}

func (r *rig) testClass() {
	ns := r.namespace()
	before := r.testCreate(ns)
	before = r.testRest(ns, before)
	before = r.testChange(ns, before)
	before = r.testRebase(ns, before)
	r.testUpgrade(ns, before)
}

// clusterctl adds the class to a cluster of the flavor, and no second time.
func (r *rig) testCreate(ns string) made {
	all := r.generate(ns, "c", "topology", "CONTROL_PLANE_ENDPOINT_TYPE=Tunnel",
		"CONTROL_PLANE_HOST_LABELS=role: control-plane", "HEALTH_CHECKS=true")
	class, cluster := all[:len(all)-1], all[len(all)-1]
	r.Expect(class).To(ContainElement(HaveField("GetKind()", "ClusterClass")))
	r.create(class)
	r.Expect(r.generate(ns, "c", "topology")).To(HaveLen(1), "the class is there")
	r.eventuallyReconciled(ns, "elemental-kubeadm")
	r.create([]*unstructured.Unstructured{cluster})

	var m made
	r.Eventually(func(g Gomega) {
		m = r.read(g, ns)
		g.Expect(m.infra.Spec.ControlPlaneEndpoint.Host).NotTo(BeEmpty(), "the provider has written the endpoint")
		g.Expect(m.cluster.Spec.ControlPlaneEndpoint.Host).To(Equal(m.infra.Spec.ControlPlaneEndpoint.Host), "Cluster API has read it")
		g.Expect(m.control.Status.Versions).To(ConsistOf(HaveField("Version", version)), "the first Machine is there")
	}).Should(Succeed())
	r.Expect(m.infra.Spec.ControlPlaneEndpointPolicy).To(Equal(infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel}))
	r.Expect(m.control.Spec.MachineTemplate.Spec.Deletion.NodeDeletionTimeoutSeconds).To(HaveValue(BeZero()))
	r.Expect(m.workers.Spec.Template.Spec.Deletion.NodeDeletionTimeoutSeconds).To(HaveValue(BeZero()))
	r.Expect(r.selector(ns, m.control.Spec.MachineTemplate.Spec.InfrastructureRef.Name)).To(
		Equal(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"role": "control-plane"}}))
	checks := &clusterv1.MachineHealthCheckList{}
	r.Expect(r.admin.List(r.t.Context(), checks, client.InNamespace(ns))).To(Succeed())
	r.Expect(checks.Items).To(HaveLen(2))
	for i := range checks.Items {
		ref := checks.Items[i].Spec.Remediation.TemplateRef
		r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: ref.Name}, &infrav1.ElementalRemediationTemplate{})).To(Succeed())
	}
	return m
}

func (r *rig) selector(ns, template string) *infrav1.HostSelector {
	r.t.Helper()
	t := &infrav1.ElementalMachineTemplate{}
	r.Expect(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: ns, Name: template}, t)).To(Succeed())
	return t.Spec.Template.Spec.HostSelector
}

// Nothing changes without a reason, however often Cluster API applies everything: neither the
// provider's fields nor an object's generation.
func (r *rig) testRest(ns string, before made) made {
	// What the provider writes while the cluster is used, besides the endpoint.
	infra := before.infra.DeepCopy()
	infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints = []infrav1.FormerEndpoint{{Host: "192.0.2.99", Port: 6443}}
	r.Expect(r.admin.Patch(r.t.Context(), infra, client.MergeFrom(before.infra), client.FieldOwner("elemental-manager"))).To(Succeed())
	for n := range 3 {
		after := r.touch(ns, fmt.Sprint(n))
		after.expectKept(r, before)
		r.Expect(after.infra.Spec).To(Equal(infra.Spec))
		r.Expect(after.infra.Generation).To(Equal(infra.Generation))
		// The annotation reaches the templates of Machines, in one write.
		r.Expect(after.control.Generation).To(Equal(before.control.Generation + 1))
		r.Expect(after.workers.Generation).To(Equal(before.workers.Generation + 1))
		r.Expect(after.workers.Spec.Template.Spec).To(Equal(before.workers.Spec.Template.Spec))
		before = after
	}
	templates := &infrav1.ElementalMachineTemplateList{}
	r.Expect(r.admin.List(r.t.Context(), templates, client.InNamespace(ns))).To(Succeed())
	r.Expect(templates.Items).To(HaveLen(4), "two of the class, two of the cluster")
	return before
}

// A variable reaches the objects that it is about, and no others.
func (r *rig) testChange(ns string, before made) made {
	r.change(ns, func(topology *clusterv1.Topology) {
		for name, value := range map[string]string{
			"workerHosts": `{"expression":"host.inventory.cpu.cores >= 8"}`, "imageRepository": `"registry.example.com/edge"`,
			"failureDomainLabel": `"rack"`, "inPlaceMode": `"Preferred"`, "controlPlaneMaxSurge": `0`, "podsOnControlPlane": `true`,
		} {
			topology.Variables = slices.DeleteFunc(topology.Variables, func(v clusterv1.ClusterVariable) bool { return v.Name == name })
			topology.Variables = append(topology.Variables, clusterv1.ClusterVariable{Name: name, Value: apiextensionsv1.JSON{Raw: []byte(value)}})
		}
		topology.Workers.MachineDeployments[0].Variables.Overrides = []clusterv1.ClusterVariable{
			{Name: "files", Value: apiextensionsv1.JSON{Raw: []byte(`[{"path":"/etc/motd","content":"shop\n","permissions":"0644"}]`)}},
			{Name: "preKubeadmCommands", Value: apiextensionsv1.JSON{Raw: []byte(`["sysctl --system"]`)}},
			{Name: "postKubeadmCommands", Value: apiextensionsv1.JSON{Raw: []byte(`["touch /run/joined"]`)}},
		}
	})
	var after made
	r.Eventually(func(g Gomega) {
		after = r.read(g, ns)
		g.Expect(after.workers.Spec.Template.Spec.InfrastructureRef).NotTo(Equal(before.workers.Spec.Template.Spec.InfrastructureRef))
		g.Expect(after.workers.Spec.Template.Spec.Bootstrap.ConfigRef).NotTo(Equal(before.workers.Spec.Template.Spec.Bootstrap.ConfigRef))
		g.Expect(after.control.Spec.Rollout.Strategy.RollingUpdate.MaxSurge).To(HaveValue(HaveField("IntVal", int32(0))))
	}).Should(Succeed())
	after.expectKept(r, before)
	r.Expect(after.infra.Spec.FailureDomains.HostLabel).To(Equal("rack"))
	r.Expect(after.infra.Spec.InPlace.Mode).To(Equal(infrav1.InPlacePreferred))
	r.Expect(r.selector(ns, after.workers.Spec.Template.Spec.InfrastructureRef.Name)).To(
		Equal(&infrav1.HostSelector{Expression: "host.inventory.cpu.cores >= 8"}))
	config := &bootstrapv1.KubeadmConfigTemplate{}
	key := client.ObjectKey{Namespace: ns, Name: after.workers.Spec.Template.Spec.Bootstrap.ConfigRef.Name}
	r.Expect(r.admin.Get(r.t.Context(), key, config)).To(Succeed())
	r.Expect(config.Spec.Template.Spec.Files).To(Equal([]bootstrapv1.File{{Path: "/etc/motd", Content: "shop\n", Permissions: "0644"}}))
	r.Expect(config.Spec.Template.Spec.PreKubeadmCommands).To(Equal([]string{"sysctl --system"}))
	r.Expect(config.Spec.Template.Spec.PostKubeadmCommands).To(Equal([]string{"touch /run/joined"}))
	r.Expect(after.control.Spec.KubeadmConfigSpec.Files).To(BeEmpty(), "the value is that of the workers")
	r.Expect(before.control.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.Taints).To(BeNil(), "kubeadm's default keeps Pods away")
	r.Expect(after.control.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration.Taints).To(HaveValue(BeEmpty()))
	r.Expect(after.control.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.Taints).To(HaveValue(BeEmpty()))
	r.Expect(before.control.Spec.KubeadmConfigSpec.ClusterConfiguration.IsDefined()).To(BeFalse())
	r.Expect(after.control.Spec.KubeadmConfigSpec.ClusterConfiguration.ImageRepository).To(Equal("registry.example.com/edge"))
	return after
}

// A cluster moves to another class with the same templates under other names, without a rollout.
func (r *rig) testRebase(ns string, before made) made {
	for _, obj := range r.generate(r.namespace(), "c", "topology") {
		if obj.GetKind() == "Cluster" {
			continue
		}
		text, err := json.Marshal(obj)
		r.Expect(err).NotTo(HaveOccurred())
		second := &unstructured.Unstructured{}
		r.Expect(json.Unmarshal([]byte(strings.ReplaceAll(string(text), `"elemental-kubeadm`, `"second`)), second)).To(Succeed())
		second.SetNamespace(ns)
		r.create([]*unstructured.Unstructured{second})
	}
	r.eventuallyReconciled(ns, "second")
	r.change(ns, func(topology *clusterv1.Topology) { topology.ClassRef.Name = "second" })
	var after made
	r.Eventually(func(g Gomega) {
		after = r.read(g, ns)
		g.Expect(after.infra.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, "second"))
		g.Expect(after.control.Annotations).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, "second"))
	}).Should(Succeed())
	after.expectKept(r, before)
	r.Expect(after.infra.Spec).To(Equal(before.infra.Spec))
	r.Expect(after.workers.Spec.Template).To(Equal(before.workers.Spec.Template))
	return after
}

// A new version reaches the control plane first. The workers keep theirs until it has the new one.
func (r *rig) testUpgrade(ns string, before made) {
	r.change(ns, func(topology *clusterv1.Topology) { topology.Version = newer })
	var after made
	r.Eventually(func(g Gomega) {
		after = r.read(g, ns)
		g.Expect(after.control.Spec.Version).To(Equal(newer))
	}).Should(Succeed())
	after.expectKept(r, before)
	r.Expect(after.workers.Spec.Template.Spec.Version).To(Equal(version))
	r.Expect(ptr.Deref(after.cluster.Spec.Paused, false)).To(BeFalse())
	r.Expect(metav1.GetControllerOf(after.infra)).NotTo(BeNil())
}

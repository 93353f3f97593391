//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// note is an annotation that an administrator writes.
	note = "example.com/note"
	// topologyManager is the field manager of Cluster API's topology controller.
	topologyManager = "capi-topology"
)

// classCluster is a cluster of a ClusterClass.
type classCluster struct{ workload }

// classMachine is a Machine of such a cluster.
type classMachine struct {
	name         string
	controlPlane bool
}

// classObjects are the objects that Cluster API makes of a topology.
type classObjects struct {
	cluster  *clusterv1.Cluster
	infra    *infrav1.ElementalCluster
	control  *unstructured.Unstructured
	workers  *clusterv1.MachineDeployment
	machines map[types.UID]classMachine
	// templates is the number of ElementalMachineTemplates.
	templates int
	// owners are the field managers of what others than Cluster API write into the ElementalCluster.
	owners map[string][]string
}

// objects reads the objects once everything is applied.
func (c classCluster) objects(ctx context.Context) (now classObjects) {
	GinkgoHelper()
	Eventually(func(g Gomega) { now = c.read(ctx, g) }).WithTimeout(time.Minute).Should(Succeed())
	return now
}

// read reads the objects. It fails as long as the present topology is not applied.
func (c classCluster) read(ctx context.Context, g Gomega) classObjects {
	now := classObjects{
		cluster: &clusterv1.Cluster{}, infra: &infrav1.ElementalCluster{}, control: &unstructured.Unstructured{},
		machines: map[types.UID]classMachine{}, owners: map[string][]string{},
	}
	g.Expect(management.Get(ctx, c.key(), now.cluster)).To(Succeed())
	g.Expect(meta.FindStatusCondition(now.cluster.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)).To(
		HaveValue(HaveField("ObservedGeneration", now.cluster.Generation)))
	g.Expect(now.cluster.Spec.InfrastructureRef.Name).NotTo(BeEmpty())
	g.Expect(management.Get(ctx, client.ObjectKey{Namespace: c.namespace(), Name: now.cluster.Spec.InfrastructureRef.Name}, now.infra)).To(Succeed())
	now.control.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	now.control.SetKind("KubeadmControlPlane")
	g.Expect(management.Get(ctx, client.ObjectKey{Namespace: c.namespace(), Name: now.cluster.Spec.ControlPlaneRef.Name}, now.control)).To(Succeed())
	workers := &clusterv1.MachineDeploymentList{}
	g.Expect(management.List(ctx, workers, c.inCluster()...)).To(Succeed())
	g.Expect(workers.Items).To(HaveLen(1))
	now.workers = &workers.Items[0]
	machines := &clusterv1.MachineList{}
	g.Expect(management.List(ctx, machines, c.inCluster()...)).To(Succeed())
	for _, m := range machines.Items {
		_, isControlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
		now.machines[m.UID] = classMachine{m.Name, isControlPlane}
	}
	templates := &infrav1.ElementalMachineTemplateList{}
	g.Expect(management.List(ctx, templates, client.InNamespace(c.namespace()))).To(Succeed())
	now.templates = len(templates.Items)
	for name, path := range map[string][]string{
		"endpoint":   {"f:spec", "f:controlPlaneEndpoint"},
		"host":       {"f:spec", "f:controlPlaneEndpointPolicy", "f:hostRef"},
		"finalizers": {"f:metadata", "f:finalizers"},
		"annotation": {"f:metadata", "f:annotations", "f:" + note},
	} {
		now.owners[name] = fieldManagers(g, now.infra, path)
	}
	return now
}

// fieldManagers returns who owns a field or a part of it, sorted.
func fieldManagers(g Gomega, object client.Object, path []string) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		var fields map[string]any
		g.Expect(json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields)).To(Succeed())
		if _, found, err := unstructured.NestedFieldNoCopy(fields, path...); err == nil && found {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// expectOwners checks that Cluster API's topology controller owns what the class says, and nothing of what others write.
func (o classObjects) expectOwners() {
	GinkgoHelper()
	Expect(fieldManagers(Default, o.infra, []string{"f:spec", "f:controlPlaneEndpointPolicy", "f:type"})).To(ContainElement(topologyManager))
	for name, managers := range o.owners {
		Expect(managers).NotTo(BeEmpty(), name)
		Expect(managers).NotTo(ContainElement(topologyManager), name)
	}
}

// expectKept checks that the ElementalCluster still has what this provider and administrators have written.
func (o classObjects) expectKept(g Gomega, before classObjects) {
	g.Expect(o.infra.UID).To(Equal(before.infra.UID))
	g.Expect(o.infra.Spec.ControlPlaneEndpoint).To(Equal(before.infra.Spec.ControlPlaneEndpoint))
	g.Expect(o.infra.Spec.ControlPlaneEndpointPolicy).To(Equal(before.infra.Spec.ControlPlaneEndpointPolicy))
	g.Expect(o.infra.Finalizers).To(Equal(before.infra.Finalizers))
	g.Expect(o.infra.Annotations).To(HaveKeyWithValue(note, before.infra.Annotations[note]))
	g.Expect(o.owners).To(Equal(before.owners))
	g.Expect(o.cluster.Spec.ControlPlaneEndpoint).To(Equal(before.cluster.Spec.ControlPlaneEndpoint))
}

// expectSame checks that nothing has changed.
func (o classObjects) expectSame(g Gomega, before classObjects) {
	o.expectKept(g, before)
	g.Expect(o.infra.Generation).To(Equal(before.infra.Generation), "ElementalCluster")
	g.Expect(o.control.GetGeneration()).To(Equal(before.control.GetGeneration()), "KubeadmControlPlane")
	g.Expect(o.workers.Generation).To(Equal(before.workers.Generation), "MachineDeployment")
	g.Expect(o.machines).To(Equal(before.machines))
	g.Expect(o.templates).To(Equal(before.templates))
}

// controlPlanes returns the Machines of the control plane.
func (o classObjects) controlPlanes() map[types.UID]classMachine {
	only := maps.Clone(o.machines)
	maps.DeleteFunc(only, func(_ types.UID, m classMachine) bool { return !m.controlPlane })
	return only
}

func (c classCluster) machineList(ctx context.Context) []clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, c.inCluster()...)).To(Succeed())
	return list.Items
}

// change changes the Cluster's topology.
func (c classCluster) change(ctx context.Context, change func(*clusterv1.Topology)) {
	GinkgoHelper()
	Expect(c.tryChange(ctx, change)).To(Succeed())
}

func (c classCluster) tryChange(ctx context.Context, change func(*clusterv1.Topology)) error {
	cluster := &clusterv1.Cluster{}
	if err := management.Get(ctx, c.key(), cluster); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	change(&cluster.Spec.Topology)
	return management.Patch(ctx, cluster, client.MergeFrom(before))
}

// setVariable gives the Cluster a further variable of its class.
func (c classCluster) setVariable(ctx context.Context, name, value string) {
	GinkgoHelper()
	c.change(ctx, func(topology *clusterv1.Topology) {
		topology.Variables = append(topology.Variables, clusterv1.ClusterVariable{
			Name: name, Value: apiextensionsv1.JSON{Raw: []byte(value)},
		})
	})
}

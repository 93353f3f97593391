package endpoint

import (
	"fmt"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// failoverAfter is short, as for those who want it fast.
	failoverAfter = 20
	// unhealthyAfter is when a Machine whose host is dead is replaced.
	unhealthyAfter = 100 * time.Second
)

// addCluster makes a Cluster with an endpoint of the user's or, if that is blank,
// one that follows a host.
func (w *world) addCluster(name, user string, controlPlanes, workers int) {
	w.T.Helper()
	w.clusters[name] = &workload{name: name, user: user, controlPlanes: controlPlanes, workers: workers}
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: w.Meta(name)}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{}
	w.create(template)
	w.create(&controlplanev1.KubeadmControlPlane{ObjectMeta: w.Meta(name), Spec: controlplanev1.KubeadmControlPlaneSpec{
		Version: "v1.36.3",
		MachineTemplate: controlplanev1.KubeadmControlPlaneMachineTemplate{Spec: controlplanev1.KubeadmControlPlaneMachineTemplateSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: name},
		}},
		KubeadmConfigSpec: bootstrapv1.KubeadmConfigSpec{},
	}})
	w.Cluster(name, func(c *clusterv1.Cluster, infra *infrav1.ElementalCluster) {
		c.Status.Initialization.InfrastructureProvisioned = nil
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: name}
		infra.Spec.ControlPlaneEndpoint.Host = user
		if user == "" {
			infra.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Failover: infrav1.EndpointFailover{AfterSeconds: new(int32(failoverAfter))}}
		}
	})
}

// controlPlane does what KubeadmControlPlane does: one machine at a time, nothing
// while one is being deleted, dead ones replaced.
func (w *world) controlPlane(c *workload) {
	w.T.Helper()
	var of []*clusterv1.Machine
	var broken *clusterv1.Machine
	whole := true
	for _, m := range w.machines(c) {
		if !util.IsControlPlaneMachine(m) {
			continue
		}
		if !m.DeletionTimestamp.IsZero() {
			return
		}
		of = append(of, m)
		whole = whole && m.Status.NodeRef.IsDefined()
		if broken == nil && w.unhealthy(m) {
			broken = m
		}
	}
	switch {
	case broken != nil && (c.connected || !broken.Status.NodeRef.IsDefined()):
		w.note("%s of %s is unhealthy", broken.Name, c.name)
		w.remove(broken)
	case !whole || w.endpointOf(c) == "" || (len(of) > 0 && !c.connected):
	case len(of) < c.controlPlanes:
		w.machine(c, true)
	case len(of) > c.controlPlanes:
		m, _ := pick(w, of)
		w.note("%s of %s is one too many", m.Name, c.name)
		w.remove(m)
	}
}

// deployment does what a MachineDeployment does.
func (w *world) deployment(c *workload) {
	count := 0
	for _, m := range w.machines(c) {
		if util.IsControlPlaneMachine(m) {
			continue
		}
		count++
		if m.DeletionTimestamp.IsZero() && w.unhealthy(m) {
			w.remove(m)
		}
	}
	if count < c.workers && w.endpointOf(c) != "" {
		w.machine(c, false)
	}
}

// unhealthy tells of a Machine whose bootstrap failed or whose host is long dead.
func (w *world) unhealthy(m *clusterv1.Machine) bool {
	o := w.hostOf(m.Name)
	if o == nil {
		return false
	}
	op := o.Operation(infrav1.OperationBootstrap, o.Spec.Claim.ID)
	h := w.host(o.Name)
	return (op != nil && op.State == infrav1.OperationFailed) || (!h.on && w.clock.Since(h.heard) > unhealthyAfter)
}

// machine makes a Machine with bootstrap data for the endpoint of now.
func (w *world) machine(c *workload, controlPlane bool) {
	w.T.Helper()
	c.made++
	kind := "worker"
	if controlPlane {
		kind = "control-plane"
	}
	name := fmt.Sprintf("%s-%s-%d", c.name, kind, c.made)
	w.data[name] = data{endpoint: w.endpointOf(c), controlPlane: controlPlane}
	labels := map[string]string{clusterv1.ClusterNameLabel: c.name}
	secret := &corev1.Secret{ObjectMeta: w.Meta(name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte(w.data[name].endpoint)}}
	secret.Labels = labels
	w.create(secret)
	owner, m := w.Machine(c.name, name, func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Name: c.name, UID: "of-the-control-plane", Controller: new(true),
		}}
		m.Finalizers = []string{infrav1.MachineFinalizer}
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: name}
		if controlPlane {
			o.Labels[clusterv1.MachineControlPlaneLabel], m.Labels[clusterv1.MachineControlPlaneLabel] = "", ""
			o.Annotations = map[string]string{controlplanev1.PreTerminateHookCleanupAnnotation: ""}
		}
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineUpToDateReason, LastTransitionTime: metav1.NewTime(w.clock.Now()),
		})
	})
	w.times.correct(owner)
	w.times.correct(m)
	w.stale = true
	w.note("%s is made for %s", name, w.data[name].endpoint)
}

// remove deletes a Machine as a user or a controller does.
func (w *world) remove(m *clusterv1.Machine) {
	w.T.Helper()
	w.Expect(client.IgnoreNotFound(w.Admin.Delete(w.ctx, m))).To(Succeed())
	w.stale = true
}

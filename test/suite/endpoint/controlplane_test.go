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
	// failoverAfter is a short failover time, in seconds.
	failoverAfter = 20
	// unhealthyAfter is the time without contact after which a Machine is replaced.
	unhealthyAfter = 100 * time.Second
)

// addCluster creates a Cluster with the user's own endpoint or, if user is blank, with
// an endpoint that follows a host.
func (s *simulation) addCluster(name, user string, controlPlanes, workers int) {
	s.T.Helper()
	c := &workload{name: name, user: user, controlPlanes: controlPlanes, workers: workers}
	s.clusters[name] = c
	if s.constrained {
		c.selector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{classLabel: serverClass}}
		if s.oneIn(2) {
			c.workerZone, _ = pick(s, zones())
		}
	}
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: s.Meta(name)}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{HostSelector: c.selector}
	s.create(template)
	s.create(&controlplanev1.KubeadmControlPlane{ObjectMeta: s.Meta(name), Spec: controlplanev1.KubeadmControlPlaneSpec{
		Version:  "v1.36.3",
		Replicas: new(int32(controlPlanes)),
		MachineTemplate: controlplanev1.KubeadmControlPlaneMachineTemplate{Spec: controlplanev1.KubeadmControlPlaneMachineTemplateSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: name},
		}},
		KubeadmConfigSpec: bootstrapv1.KubeadmConfigSpec{},
	}})
	s.Cluster(name, func(o *clusterv1.Cluster, infra *infrav1.ElementalCluster) {
		o.Status.Initialization.InfrastructureProvisioned = nil
		o.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: name}
		infra.Spec.ControlPlaneEndpoint.Host = user
		if user == "" {
			infra.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Failover: infrav1.EndpointFailover{AfterSeconds: new(int32(failoverAfter))}}
		}
	})
}

// controlPlane acts like KubeadmControlPlane: it adds one machine at a time, waits for
// deletions, and replaces dead machines.
func (s *simulation) controlPlane(c *workload) {
	s.T.Helper()
	var of []*clusterv1.Machine
	var broken *clusterv1.Machine
	whole := true
	for _, m := range s.machines(c) {
		if !util.IsControlPlaneMachine(m) {
			continue
		}
		if !m.DeletionTimestamp.IsZero() {
			return
		}
		of = append(of, m)
		whole = whole && m.Status.NodeRef.IsDefined()
		if broken == nil && s.unhealthy(m) {
			broken = m
		}
	}
	switch {
	case broken != nil && (c.connected || !broken.Status.NodeRef.IsDefined()):
		s.record("%s of %s is unhealthy", broken.Name, c.name)
		s.remove(broken)
	case !whole || s.endpointOf(c) == "" || (len(of) > 0 && !c.connected):
	case len(of) < c.controlPlanes:
		s.machine(c, controlPlaneMachine, s.nextDomain(c, of))
	case len(of) > c.controlPlanes:
		m := s.superfluous(c, of)
		s.record("%s of %s is one too many", m.Name, c.name)
		s.remove(m)
	}
}

// deployment acts like a MachineDeployment.
func (s *simulation) deployment(c *workload) {
	count := 0
	for _, m := range s.machines(c) {
		if util.IsControlPlaneMachine(m) {
			continue
		}
		count++
		if m.DeletionTimestamp.IsZero() && s.unhealthy(m) {
			s.remove(m)
		}
	}
	if count < c.workers && c.initialized {
		s.machine(c, workerMachine, c.workerZone)
	}
}

// unhealthy reports whether a Machine's bootstrap failed or its host is long dead.
func (s *simulation) unhealthy(m *clusterv1.Machine) bool {
	o := s.hostOf(m.Name)
	if o == nil {
		return false
	}
	op := o.Operation(infrav1.OperationBootstrap, o.Spec.Claim.ID)
	h := s.host(o.Name)
	return (op != nil && op.State == infrav1.OperationFailed) || (!h.on && s.clock.Since(h.lastContact) > unhealthyAfter)
}

// machine creates a Machine in a failure domain, with bootstrap data for the current
// endpoint.
func (s *simulation) machine(c *workload, kind machineKind, domain string) {
	s.T.Helper()
	c.made++
	controlPlane := kind == controlPlaneMachine
	name := fmt.Sprintf("%s-%s-%d", c.name, kind, c.made)
	s.data[name] = data{endpoint: s.endpointOf(c), controlPlane: controlPlane}
	labels := map[string]string{clusterv1.ClusterNameLabel: c.name}
	secret := &corev1.Secret{ObjectMeta: s.Meta(name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte(s.data[name].endpoint)}}
	secret.Labels = labels
	s.create(secret)
	owner, m := s.Machine(c.name, name, func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "KubeadmControlPlane", Name: c.name, UID: "of-the-control-plane", Controller: new(true),
		}}
		o.Spec.FailureDomain = domain
		m.Finalizers = []string{infrav1.MachineFinalizer}
		m.Spec.Release.DisconnectedTimeoutSeconds = new(int32(releaseTimeoutSeconds))
		if s.constrained && s.oneIn(4) {
			m.Spec.Release.Policy = infrav1.ReleaseHold
		}
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: name}
		if controlPlane {
			m.Spec.HostSelector = c.selector
			o.Labels[clusterv1.MachineControlPlaneLabel], m.Labels[clusterv1.MachineControlPlaneLabel] = "", ""
			o.Annotations = map[string]string{controlplanev1.PreTerminateHookCleanupAnnotation: ""}
		}
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineUpToDateReason, LastTransitionTime: metav1.NewTime(s.clock.Now()),
		})
	})
	s.times.correct(owner)
	s.times.correct(m)
	s.stale = true
	s.record("%s is made for %s in domain %q", name, s.data[name].endpoint, domain)
}

// remove deletes a Machine as a user or a controller does.
func (s *simulation) remove(m *clusterv1.Machine) {
	s.T.Helper()
	s.Expect(client.IgnoreNotFound(s.Admin.Delete(s.ctx, m))).To(Succeed())
	s.stale = true
}

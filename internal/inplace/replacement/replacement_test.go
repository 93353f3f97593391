package replacement_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/replacement"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// rig is a cluster of mode Required without surges: a control plane of three Machines, and a
// MachineDeployment of two, which has a MachineSet for the former version.
type rig struct {
	*controllertest.Fixture

	cluster    *clusterv1.Cluster
	infra      *infrav1.ElementalCluster
	kcp        *controlplanev1.KubeadmControlPlane
	deployment *clusterv1.MachineDeployment
	set        *clusterv1.MachineSet
	// control and worker are Machines of each.
	control, worker *clusterv1.Machine
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Fixture: controllertest.New(t, env)}
	r.cluster, r.infra = r.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.InPlace.Mode = infrav1.InPlaceRequired })
	finalizers := []string{"test/hold"}
	zero := intstr.FromInt32(0)

	r.kcp = &controlplanev1.KubeadmControlPlane{ObjectMeta: r.Meta("cp")}
	r.kcp.Finalizers = finalizers
	r.kcp.Spec.Version, r.kcp.Spec.Replicas = "v1.36.3", new(int32(3))
	r.kcp.Spec.Rollout.Strategy = controlplanev1.KubeadmControlPlaneRolloutStrategy{
		Type: controlplanev1.RollingUpdateStrategyType, RollingUpdate: controlplanev1.KubeadmControlPlaneRolloutStrategyRollingUpdate{MaxSurge: &zero},
	}
	r.kcp.Spec.MachineTemplate.Spec.InfrastructureRef = reference("ElementalMachineTemplate", "t")
	r.Create(r.kcp)

	r.deployment = &clusterv1.MachineDeployment{ObjectMeta: r.Meta("md")}
	r.deployment.Finalizers = finalizers
	r.deployment.Spec.ClusterName, r.deployment.Spec.Replicas = "c", new(int32(2))
	r.deployment.Spec.Selector.MatchLabels = map[string]string{"a": "b"}
	r.deployment.Spec.Template = template()
	r.deployment.Spec.Rollout.Strategy = clusterv1.MachineDeploymentRolloutStrategy{
		Type:          clusterv1.RollingUpdateMachineDeploymentStrategyType,
		RollingUpdate: clusterv1.MachineDeploymentRolloutStrategyRollingUpdate{MaxSurge: &zero},
	}
	r.Create(r.deployment)
	r.set = &clusterv1.MachineSet{ObjectMeta: r.Meta("md-1")}
	r.set.Finalizers = finalizers
	r.set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.deployment, clusterv1.GroupVersion.WithKind("MachineDeployment"))}
	r.set.Spec.ClusterName, r.set.Spec.Selector.MatchLabels, r.set.Spec.Template = "c", map[string]string{"a": "b"}, template()
	r.Create(r.set)

	for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
		r.control = r.addControlPlane(name)
	}
	for _, name := range []string{"md-1-1", "md-1-2"} {
		r.worker = r.addWorker(name)
	}
	return r
}

func template() clusterv1.MachineTemplateSpec {
	out := clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	out.Spec.ClusterName, out.Spec.InfrastructureRef = "c", reference("ElementalMachineTemplate", "t")
	out.Spec.Bootstrap.DataSecretName = new("x")
	return out
}

func reference(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: kind, Name: name}
}

func (r *rig) addControlPlane(name string) *clusterv1.Machine {
	m, _ := r.Machine("c", name, controllertest.ControlPlane, func(m *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.kcp, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))}
		m.Status.NodeRef.Name = name
	})
	return m
}

func (r *rig) addWorker(name string) *clusterv1.Machine {
	m, _ := r.Machine("c", name, func(m *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.set, clusterv1.GroupVersion.WithKind("MachineSet"))}
		m.Labels[clusterv1.MachineDeploymentNameLabel] = "md"
		m.Status.NodeRef.Name = name
	})
	return m
}

// refusal returns why the Machine must not be deleted.
func (r *rig) refusal(m *clusterv1.Machine) string {
	r.T.Helper()
	r.Refresh(m)
	refusal, err := replacement.New(r.Admin, "").RefuseDeletion(r.Ctx, m)
	r.Expect(err).NotTo(HaveOccurred())
	return refusal
}

func (r *rig) surge(surge intstr.IntOrString) {
	controllertest.Change(r.Fixture, r.kcp, func(k *controlplanev1.KubeadmControlPlane) { k.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = &surge })
	controllertest.Change(r.Fixture, r.deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = &surge })
}

func (r *rig) replicas(controlPlanes, workers int32) {
	controllertest.Change(r.Fixture, r.kcp, func(k *controlplanev1.KubeadmControlPlane) { k.Spec.Replicas = &controlPlanes })
	controllertest.Change(r.Fixture, r.deployment, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = &workers })
}

func (r *rig) condition(kind string, status metav1.ConditionStatus) {
	for _, m := range []*clusterv1.Machine{r.control, r.worker} {
		controllertest.ChangeStatus(r.Fixture, m, func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()})
		})
	}
}

func (r *rig) annotate(key string) {
	for _, m := range []*clusterv1.Machine{r.control, r.worker} {
		controllertest.Change(r.Fixture, m, func(m *clusterv1.Machine) { m.Annotations = map[string]string{key: ""} })
	}
}

func TestReplacementsAreRefused(t *testing.T) {
	r := newRig(t)
	r.Expect(r.refusal(r.control)).To(Equal("spec.inPlace.mode of ElementalCluster c is Required, and Machine cp-3 would be replaced and its host reset: " +
		"KubeadmControlPlane cp wants 3 Machines and has 3. To have it replaced, set the annotation cluster.x-k8s.io/delete-machine on the Machine, or another mode. " +
		"To have it changed in place, see the condition KubernetesUpToDate of ElementalMachine cp-3"))
	r.Expect(r.refusal(r.worker)).To(ContainSubstring("MachineDeployment md wants 2 Machines and has 2."))

	t.Log("A Machine that a health check finds unhealthy is kept until its owner is to remediate it. Machines that leave don't count")
	r.condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse)
	for _, name := range []string{"cp-1", "md-1-1"} {
		m := &clusterv1.Machine{ObjectMeta: r.Meta(name)}
		controllertest.Change(r.Fixture, m, func(m *clusterv1.Machine) { m.Finalizers = []string{"test/hold"} })
		r.Delete(m)
	}
	r.Expect(r.refusal(r.control)).To(ContainSubstring("wants 3 Machines and has 2"))
	r.Expect(r.refusal(r.worker)).To(ContainSubstring("wants 2 Machines and has 1"))

	t.Log("The manager of another namespace decides there")
	other, err := replacement.New(r.Admin, "other").RefuseDeletion(r.Ctx, r.control)
	r.Expect([]any{other, err}).To(Equal([]any{"", nil}))
}

// During a surge, an owner has more Machines than it wants until it has deleted an outdated one.
func TestSurges(t *testing.T) {
	for name, surge := range map[string]intstr.IntOrString{"number": intstr.FromInt32(1), "percentage": intstr.FromString("30%")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.surge(surge)
			r.addControlPlane("cp-4")
			r.addWorker("md-2-1")
			r.condition(clusterv1.MachineUpToDateCondition, metav1.ConditionFalse)
			r.Expect(r.refusal(r.control)).To(ContainSubstring("wants 3 Machines and has 4"))
			r.Expect(r.refusal(r.worker)).To(ContainSubstring("wants 2 Machines and has 3"))
			for _, name := range []string{"cp-4", "md-2-1"} {
				r.Expect(r.refusal(&clusterv1.Machine{ObjectMeta: r.Meta(name)})).To(BeEmpty(), "up to date")
			}
			r.replicas(2, 1)
			for _, name := range []string{"cp-1", "md-1-1"} {
				r.Expect(r.refusal(&clusterv1.Machine{ObjectMeta: r.Meta(name)})).To(BeEmpty(), "scaled down")
			}
		})
	}
}

// What is not a replacement, and what somebody wants, goes on.
func TestOtherDeletionsAreNotRefused(t *testing.T) {
	remove := func(objects ...func(*rig) client.Object) func(*rig) {
		return func(r *rig) {
			for _, object := range objects {
				r.Delete(object(r))
			}
		}
	}
	for name, change := range map[string]func(*rig){
		"the mode is Preferred": func(r *rig) {
			controllertest.Change(r.Fixture, r.infra, func(c *infrav1.ElementalCluster) { c.Spec.InPlace.Mode = infrav1.InPlacePreferred })
		},
		"the owners are scaled down": func(r *rig) { r.replicas(2, 1) },
		"the Cluster is deleted": func(r *rig) {
			controllertest.Change(r.Fixture, r.cluster, func(c *clusterv1.Cluster) { c.Finalizers = []string{"test/hold"} })
			r.Delete(r.cluster)
		},
		"the Cluster is gone": remove(func(r *rig) client.Object { return r.cluster }),
		"the owners are deleted": remove(
			func(r *rig) client.Object { return r.kcp }, func(r *rig) client.Object { return r.deployment }),
		"the owners' own are deleted":     remove(func(r *rig) client.Object { return r.kcp }, func(r *rig) client.Object { return r.set }),
		"a person wants another Machine":  func(r *rig) { r.annotate(clusterv1.DeleteMachineAnnotation) },
		"a person wants a remediation":    func(r *rig) { r.annotate(clusterv1.RemediateMachineAnnotation) },
		"clusterctl moves the Machines":   func(r *rig) { r.annotate(clusterctlv1.DeleteForMoveAnnotation) },
		"a MachineHealthCheck remediates": func(r *rig) { r.remediate() },
		"the Machines have no Nodes yet": func(r *rig) {
			for _, m := range []*clusterv1.Machine{r.control, r.worker} {
				controllertest.ChangeStatus(r.Fixture, m, func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{} })
			}
		},
		"the Machines have no owners": func(r *rig) {
			for _, m := range []*clusterv1.Machine{r.control, r.worker} {
				controllertest.Change(r.Fixture, m, func(m *clusterv1.Machine) { m.OwnerReferences = nil })
			}
		},
		"the MachineSet has no owner": func(r *rig) {
			r.Delete(r.kcp)
			controllertest.Change(r.Fixture, r.set, func(s *clusterv1.MachineSet) { s.OwnerReferences = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Expect(r.refusal(r.control)).NotTo(BeEmpty())
			change(r)
			r.Expect(r.refusal(r.control)).To(BeEmpty())
			r.Expect(r.refusal(r.worker)).To(BeEmpty())
		})
	}
}

func (r *rig) remediate() {
	r.condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse)
	r.condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse)
}

// blocked is a reader whose reads end with an error when released is closed.
type blocked struct {
	client.Reader

	reads    chan struct{}
	released chan struct{}
}

func (b blocked) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	b.reads <- struct{}{}
	<-b.released
	return errors.New("released")
}

// Everybody who reaches the webhook can ask, and each question is several reads.
func TestQuestionsAreBounded(t *testing.T) {
	g := NewWithT(t)
	const limit = 8
	reader := blocked{reads: make(chan struct{}, limit+1), released: make(chan struct{})}
	guard := replacement.New(reader, "")
	machine := &clusterv1.Machine{}
	machine.Status.NodeRef.Name = "n"
	var asking sync.WaitGroup
	for range limit {
		asking.Go(func() {
			if _, err := guard.RefuseDeletion(t.Context(), machine); err == nil {
				t.Error("a deletion was judged although its Cluster is unknown")
			}
		})
		<-reader.reads
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := guard.RefuseDeletion(ctx, machine)
	g.Expect(err).To(MatchError(ContainSubstring("waiting for other deletions")))
	close(reader.released)
	asking.Wait()
	g.Expect(reader.reads).To(BeEmpty())
}

package remediation_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/collections"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/remediation"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse

	recovery = 100 * time.Second
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// fixture adds this package's reconciler and a cluster to the common fixture.
type fixture struct {
	*controllertest.Fixture

	reconciler *remediation.Reconciler
	registry   *prometheus.Registry
	cluster    *clusterv1.Cluster
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env), registry: prometheus.NewRegistry()}
	metrics, err := remediation.NewMetrics(f.registry)
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler = &remediation.Reconciler{Client: f.Client, Recorder: f.Recorder, Clock: f.Clock, Metrics: metrics}
	f.cluster, _ = f.Cluster("c")
	return f
}

// node is a provisioned Machine with a host that has been connected for a long time.
type node struct {
	f           *fixture
	host        *infrav1.ElementalHost
	owner       *clusterv1.Machine
	machine     *infrav1.ElementalMachine
	remediation *infrav1.ElementalRemediation
}

// node creates a provisioned Machine of a MachineSet.
func (f *fixture) node(name string, changes ...func(*infrav1.ElementalHost)) *node {
	f.T.Helper()
	n := &node{f: f}
	n.host = f.Host(name, append([]func(*infrav1.ElementalHost){func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound}
		h.Status.Connection.Since = metav1.NewTime(f.Clock.Now().Add(-time.Hour))
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset", "Reboot"}}
		h.Status.Operations = []infrav1.HostOperation{{
			Type: infrav1.OperationBootstrap, ID: "claim-" + name, State: infrav1.OperationSucceeded,
		}}
	}}, changes...)...)
	n.owner, n.machine = f.Machine("c", name, func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", UID: "1", Controller: new(true),
		}}
		m.Spec.HostRef = &infrav1.HostReference{Name: name, ClaimID: "claim-" + name}
	})
	return n
}

// unhealthy marks the Machine as unhealthy and creates the remediation with the code of
// Cluster API's MachineHealthCheck.
func (n *node) unhealthy(spec infrav1.ElementalRemediationSpec) *node {
	f := n.f
	f.T.Helper()
	if spec.RecoverySeconds == nil {
		spec.RecoverySeconds = new(int32(recovery / time.Second))
	}
	template := &infrav1.ElementalRemediationTemplate{ObjectMeta: f.Meta(n.owner.Name)}
	template.Spec.Template.Spec = &spec
	f.Create(template)
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	f.Expect(err).NotTo(HaveOccurred())
	request, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: &unstructured.Unstructured{Object: raw},
		TemplateRef: &corev1.ObjectReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalRemediationTemplate", Namespace: f.Namespace, Name: template.Name,
		},
		Namespace: f.Namespace, ClusterName: "c",
		OwnerRef: &metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: n.owner.Name, UID: n.owner.UID},
	})
	f.Expect(err).NotTo(HaveOccurred())
	request.SetAPIVersion(infrav1.GroupVersion.String())
	request.SetKind("ElementalRemediation")
	request.SetName(n.owner.Name)
	f.Expect(f.Admin.Create(f.Ctx, request)).To(Succeed())
	n.health(no)
	n.remediation = &infrav1.ElementalRemediation{ObjectMeta: f.Meta(n.owner.Name)}
	f.Refresh(n.remediation)
	return n
}

// health sets the condition of the Machine that the health check would set.
func (n *node) health(status metav1.ConditionStatus) {
	n.f.T.Helper()
	n.setCondition(metav1.Condition{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: status, Reason: "NodeUnhealthy"})
}

func (n *node) setCondition(c metav1.Condition) {
	n.f.T.Helper()
	controllertest.ChangeStatus(n.f.Fixture, n.owner, func(m *clusterv1.Machine) {
		c.LastTransitionTime = metav1.NewTime(n.f.Clock.Now())
		for i := range m.Status.Conditions {
			if m.Status.Conditions[i].Type == c.Type {
				m.Status.Conditions[i] = c
				return
			}
		}
		m.Status.Conditions = append(m.Status.Conditions, c)
	})
}

// reconcile reconciles the remediation once and reads it.
func (n *node) reconcile() ctrl.Result {
	n.f.T.Helper()
	result, err := n.f.reconciler.Reconcile(n.f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(n.remediation)})
	n.f.Expect(err).NotTo(HaveOccurred())
	n.f.Exists(n.remediation)
	n.f.Refresh(n.host)
	return result
}

// expect reconciles and checks the reason of the condition Ready and the requeue time.
func (n *node) expect(reason string, again time.Duration) {
	n.f.T.Helper()
	n.f.Expect(n.reconcile().RequeueAfter).To(Equal(again), "time until the next reconcile")
	n.f.ExpectCondition(n.remediation, infrav1.ReadyCondition, no, reason)
	written := len(n.f.Client.Writes())
	n.reconcile()
	n.f.Expect(n.f.Client.Writes()).To(HaveLen(written), "a second reconcile must not write")
}

// report records the state of the requested reboot, as the agent API does.
func (n *node) report(state infrav1.OperationState) {
	n.f.T.Helper()
	n.f.Report(n.host, func(status *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(status, infrav1.HostOperation{
			Type: infrav1.OperationReboot, ID: n.host.Spec.Reboot.ID, State: state, Message: "because",
		})
	})
}

func (n *node) connect()    { n.f.SetConnection(n.host, infrav1.ConnectionConnected) }
func (n *node) disconnect() { n.f.SetConnection(n.host, infrav1.ConnectionDisconnected) }

// toBeReplaced reports whether the Machine's owner would replace it, by the filter that
// MachineSets and control planes use.
func (n *node) toBeReplaced() bool {
	n.f.T.Helper()
	n.f.Refresh(n.owner)
	n.f.Expect(n.owner.DeletionTimestamp.IsZero()).To(BeTrue(), "a remediation must not delete the Machine")
	return collections.IsUnhealthyAndOwnerRemediated(n.owner)
}

// outcomes returns the counted outcomes.
func (f *fixture) outcomes() map[string]float64 {
	f.T.Helper()
	families, err := f.registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	counted := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			counted[metric.Label[0].GetValue()] = metric.Counter.GetValue()
		}
	}
	return counted
}

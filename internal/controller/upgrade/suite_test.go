package upgrade_test

import (
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/upgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	former = "v1.35.4"
	wanted = "v1.36.3"
	no     = metav1.ConditionFalse
	yes    = metav1.ConditionTrue

	pendingHooks = "runtime.cluster.x-k8s.io/pending-hooks"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

type fixture struct {
	*controllertest.Fixture

	reconciler *upgrade.Reconciler
}

// newFixture returns a fixture with the cluster c, whose mode is Required.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env)}
	f.reconciler = &upgrade.Reconciler{Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
	f.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.InPlace.Mode = infrav1.InPlaceRequired })
	return f
}

// node is a Machine with a Node on a host of the same name.
type node struct {
	*fixture

	owner   *clusterv1.Machine
	machine *infrav1.ElementalMachine
	host    *infrav1.ElementalHost
}

// node creates a Machine whose Node has the former version.
func (f *fixture) node(name string, changes ...func(*clusterv1.Machine, *infrav1.ElementalMachine)) *node {
	f.T.Helper()
	n := &node{fixture: f}
	n.host = f.Host(name, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound}
		h.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"NodeUpgrade"}}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim-" + name, State: infrav1.OperationSucceeded}}
	})
	n.owner, n.machine = f.Machine("c", name, append([]func(*clusterv1.Machine, *infrav1.ElementalMachine){
		func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
			o.Spec.Version = former
			o.Status.NodeRef = clusterv1.MachineNodeReference{Name: name}
			o.Status.NodeInfo = nodeInfo(former)
			m.Spec.HostRef = &infrav1.HostReference{Name: name, ClaimID: "claim-" + name}
			m.Spec.ProviderID = "elemental://n/" + name
		},
	}, changes...)...)
	return n
}

func nodeInfo(version string) *corev1.NodeSystemInfo {
	return &corev1.NodeSystemInfo{KubeletVersion: version}
}

// release creates the release of the wanted version.
func (f *fixture) release() {
	f.T.Helper()
	f.Create(&infrav1.ElementalKubernetesRelease{ObjectMeta: f.Meta(wanted), Spec: infrav1.ElementalKubernetesReleaseSpec{
		Version: wanted, Bundles: []infrav1.KubernetesBundle{{Architecture: "amd64", SHA256: digest, SizeBytes: 1}},
	}})
}

var digest = strings.Repeat("a", 64)

// ask marks the Machine and asks for its update to the wanted version, as Cluster API does.
func (n *node) ask() {
	n.T.Helper()
	controllertest.Change(n.Fixture, n.owner, func(o *clusterv1.Machine) {
		o.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: "", pendingHooks: "UpdateMachine"}
		o.Spec.Version = wanted
	})
	controllertest.Change(n.Fixture, n.machine, func(m *infrav1.ElementalMachine) {
		m.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
	})
}

// end removes the marks, as Cluster API does when it is told that the update is done, or when
// somebody has removed that of the Machine.
func (n *node) end() {
	n.T.Helper()
	controllertest.Change(n.Fixture, n.owner, func(o *clusterv1.Machine) { o.Annotations = nil })
	controllertest.Change(n.Fixture, n.machine, func(m *infrav1.ElementalMachine) { m.Annotations = nil })
}

// reconcile reconciles the node once, and reads its objects.
func (n *node) reconcile() ctrl.Result {
	n.T.Helper()
	result, err := n.reconciler.Reconcile(n.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(n.machine)})
	n.Expect(err).NotTo(HaveOccurred())
	n.Refresh(n.machine)
	n.Refresh(n.host)
	n.Refresh(n.owner)
	return result
}

// report reports the state of the requested upgrade.
func (n *node) report(state infrav1.OperationState, step, message string) {
	n.T.Helper()
	n.Report(n.host, func(status *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(status, infrav1.HostOperation{
			Type: infrav1.OperationNodeUpgrade, ID: n.host.Spec.NodeUpgrade.ID, State: state, Step: step, Message: message,
		})
	})
}

// version sets what the Node reports.
func (n *node) version(version string) {
	n.T.Helper()
	controllertest.ChangeStatus(n.Fixture, n.owner, func(o *clusterv1.Machine) { o.Status.NodeInfo = nodeInfo(version) })
}

// expect reconciles the node and checks the condition, whose message it returns.
func (n *node) expect(status metav1.ConditionStatus, reason string) string {
	n.T.Helper()
	n.reconcile()
	return n.ExpectCondition(n.machine, infrav1.KubernetesUpToDateCondition, status, reason).Message
}

func (n *node) condition() *metav1.Condition {
	return meta.FindStatusCondition(n.machine.Status.Conditions, infrav1.KubernetesUpToDateCondition)
}

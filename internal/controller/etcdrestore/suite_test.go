package etcdrestore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// fixture is a cluster of one control-plane host that has a snapshot, and a restore that nobody
// has confirmed.
type fixture struct {
	*controllertest.Fixture

	reconciler *etcdrestore.Reconciler
	cluster    *clusterv1.Cluster
	infra      *infrav1.ElementalCluster
	host       *infrav1.ElementalHost
	restore    *infrav1.ElementalEtcdRestore
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env)}
	f.reconciler = &etcdrestore.Reconciler{Client: f.Client, APIReader: f.Client, Recorder: f.Recorder, Clock: f.Clock, DisconnectGrace: 2 * time.Minute}
	f.cluster, f.infra = f.Cluster("c")
	f.host = f.Host("h", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "EtcdRestore", "EtcdSnapshotFetch"}}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: "claim", State: infrav1.OperationSucceeded}}
		h.Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{
			{ID: "1", CompletedAt: metav1.NewTime(f.Clock.Now().Add(-time.Hour)), SHA256: strings.Repeat("a", 64)},
		}}
	})
	f.restore = &infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta("r")}
	f.restore.Spec.ClusterName = "c"
	f.restore.Spec.Source.Snapshot = &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "1"}
	f.Create(f.restore)
	return f
}

func (f *fixture) confirm() {
	f.T.Helper()
	controllertest.Change(f.Fixture, f.restore, func(r *infrav1.ElementalEtcdRestore) { r.Spec.Confirm = "c" })
}

func requestOf(r *infrav1.ElementalEtcdRestore) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)}
}

// reconcile reconciles the restore once and reads everything.
func (f *fixture) reconcile() {
	f.T.Helper()
	_, err := f.reconciler.Reconcile(f.Ctx, requestOf(f.restore))
	f.Expect(err).NotTo(HaveOccurred())
	f.Exists(f.restore)
	f.Refresh(f.cluster)
	f.Refresh(f.host)
}

// reconcileAgain is reconcile for a manager that may end at a write: the next one goes on.
func (f *fixture) reconcileAgain() {
	f.T.Helper()
	if _, err := f.reconciler.Reconcile(f.Ctx, requestOf(f.restore)); err != nil {
		f.reconcile()
	}
	f.Refresh(f.host)
	f.Refresh(f.restore)
}

// expect reconciles and checks the condition, and that a second reconcile writes nothing.
func (f *fixture) expect(status metav1.ConditionStatus, reason string) {
	f.T.Helper()
	f.reconcile()
	f.ExpectCondition(f.restore, infrav1.RestoredCondition, status, reason)
	written := len(f.Client.Writes())
	f.reconcile()
	f.Expect(f.Client.Writes()).To(HaveLen(written), "a second reconcile must not write")
}

// expectPaused checks whether the Cluster is paused for the restore.
func (f *fixture) expectPaused(paused bool) {
	f.T.Helper()
	f.Refresh(f.cluster)
	f.Expect(f.cluster.Spec.Paused != nil && *f.cluster.Spec.Paused).To(Equal(paused), "spec.paused of the Cluster")
	if paused {
		f.Expect(f.cluster.Annotations).To(HaveKeyWithValue(infrav1.RestoreAnnotation, "r"))
	} else {
		f.Expect(f.cluster.Annotations).NotTo(HaveKey(infrav1.RestoreAnnotation))
	}
}

// operation returns the operation in the host's plan, whose cluster is paused as it is.
func (f *fixture) operation() *protocol.Operation {
	f.T.Helper()
	f.Refresh(f.host)
	f.Refresh(f.cluster)
	isPaused := f.cluster.Spec.Paused != nil && *f.cluster.Spec.Paused
	return plan.For(f.host, plan.Site{}, plan.Cluster{Infra: f.infra, Paused: isPaused}).Operation
}

// report records the state of the restore, as the agent API does.
func (f *fixture) report(state infrav1.OperationState, step, message string) {
	f.T.Helper()
	f.Report(f.host, func(status *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(status, infrav1.HostOperation{
			Type: infrav1.OperationEtcdRestore, ID: f.host.Spec.EtcdRestore.ID, State: state, Step: step, Message: message,
		})
	})
}

package access_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/access"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// fixture is a cluster whose API server is also that of the management cluster.
type fixture struct {
	*controllertest.Fixture

	reconciler *access.Reconciler
	cluster    *clusterv1.Cluster
	infra      *infrav1.ElementalCluster
	workload   *workload
}

// workload implements access.Workloads.
type workload struct {
	g *WithT
	// lost is the error of whoever connects to the workload cluster; connections counts them.
	lost        error
	connections int
	// during is called at each connection.
	during func()
	// refused is the API server's answer to each write there.
	refused error
}

// newFixture creates a cluster that can be reached, with these bindings.
func newFixture(t *testing.T, bindings ...infrav1.AccessBinding) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env), workload: &workload{g: NewWithT(t)}}
	f.reconciler = &access.Reconciler{Client: f.Client, Recorder: f.Recorder, Clock: f.Clock, Workloads: f.workload}
	f.cluster, f.infra = f.Cluster("c", func(c *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		c.Status.Initialization.ControlPlaneInitialized = new(true)
		i.Spec.ControlPlaneEndpoint.Host = "10.0.0.1"
		if bindings != nil {
			i.Spec.Access = &infrav1.Access{Bindings: bindings}
		}
	})
	f.setTunnels(yes, infrav1.TunnelReadyReason)
	t.Cleanup(func() {
		_ = env.Client(t).DeleteAllOf(context.Background(), &rbacv1.ClusterRoleBinding{}, client.HasLabels{label})
	})
	return f
}

func (f *fixture) setTunnels(status metav1.ConditionStatus, reason string) {
	f.T.Helper()
	controllertest.ChangeStatus(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: infrav1.TunnelReadyCondition, Status: status, Reason: reason, Message: "as the test says"})
	})
}

// Admin implements access.Workloads.
func (w *workload) Admin(_ context.Context, cluster types.NamespacedName) (client.Client, error) {
	w.connections++
	w.g.Expect(cluster.Name).To(Equal("c"))
	if w.during != nil {
		w.during()
	}
	if w.lost != nil {
		return nil, w.lost
	}
	c, err := client.NewWithWatch(env.Config, env.ClientOptions())
	w.g.Expect(err).NotTo(HaveOccurred())
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if w.refused != nil {
				return w.refused
			}
			return c.Create(ctx, o, opts...)
		},
	}), nil
}

func (f *fixture) reconcile() ctrl.Result {
	f.T.Helper()
	result, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.infra)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Refresh(f.infra)
	return result
}

// again reconciles after the time that the last reconcile asked for, which is a minute at most.
func (f *fixture) again(last ctrl.Result) ctrl.Result {
	f.T.Helper()
	f.Expect(last.RequeueAfter).To(And(BeNumerically(">=", 45*time.Second), BeNumerically("<=", time.Minute)))
	return f.reconcile()
}

func (f *fixture) bindings() []rbacv1.ClusterRoleBinding {
	f.T.Helper()
	list := &rbacv1.ClusterRoleBindingList{}
	f.Expect(f.Admin.List(f.Ctx, list, client.HasLabels{label})).To(Succeed())
	return list.Items
}

func (f *fixture) binding(role string) *rbacv1.ClusterRoleBinding {
	f.T.Helper()
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "elemental-access:" + role}}
	f.Refresh(b)
	return b
}

func subjects(b *rbacv1.ClusterRoleBinding) string {
	out := make([]string, 0, len(b.Subjects))
	for _, s := range b.Subjects {
		out = append(out, s.APIGroup+" "+s.Kind+" "+s.Name)
	}
	return strings.Join(out, ", ")
}

func view() infrav1.AccessBinding {
	return infrav1.AccessBinding{ClusterRole: "view", Users: []string{"ann", "management:system:serviceaccount:ci:bot"}, Groups: []string{"ops"}}
}

// Package deletion_test deletes everything that a cluster consists of, in every
// order: no finalizer may ever have to be removed by hand.
//
// The reconcilers are called against a real API server until they write nothing
// any more, with a clock of the test's own. What Cluster API, the garbage
// collector and the agent do in between is done by the test, no more of it than
// the order of deletions depends on.
package deletion_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// timeout is how long a silent host may hold its machine.
const timeout = 20 * time.Second

// world is one cluster with one machine, and what belongs to it.
type world struct {
	*controllertest.Fixture

	objects map[string]client.Object
	owner   *clusterv1.Machine
	machine *infrav1.ElementalMachine
	host    *infrav1.ElementalHost
	spare   *infrav1.ElementalHost
	// vanish has Clusters and Machines lose Cluster API's finalizers at once, as
	// when somebody strips them or Cluster API is not there any more.
	vanish bool
	// changed tells that somebody else than the reconcilers did something.
	changed bool
}

// newWorld makes a cluster whose machine has a host in the state.
func newWorld(t *testing.T, s state, vanish bool) *world {
	t.Helper()
	w := &world{Fixture: controllertest.New(t, env), vanish: vanish}
	live, err := client.NewWithWatch(env.Config, env.ClientOptions())
	w.Expect(err).NotTo(HaveOccurred())
	memory := remember(live)
	w.Admin, w.Client = memory, controllertest.Wrap(t, memory, index.Register)
	able := func(h *infrav1.ElementalHost) {
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset"}}
	}
	w.host = w.Host("h1", able)
	w.spare = w.Host("h2", able, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}
	})
	core, infra := w.Cluster("c", func(c *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		c.Finalizers = []string{clusterv1.ClusterFinalizer}
		i.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	})
	w.owner, w.machine = w.Machine("c", "m", func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
		m.Spec.HostName = w.host.Name
		m.Spec.Release.DisconnectedTimeoutSeconds = new(int32(timeout / time.Second))
		if s.machine != nil {
			s.machine(o, m)
		}
	})
	registration := &infrav1.ElementalRegistration{ObjectMeta: w.Meta("r")}
	w.Create(registration)
	w.objects = map[string]client.Object{
		"Cluster": core, "ElementalCluster": infra, "Machine": w.owner, "ElementalMachine": w.machine, "ElementalHost": w.host,
		"ElementalRegistration": registration,
		"bootstrap Secret":      w.secret("m", w.owner, "Machine"),
		"token Secret":          w.secret("r-token", registration, "ElementalRegistration"),
		"CA Secret":             w.secret("c-ca", core, "Cluster"),
		"kubeconfig Secret":     w.secret("c-kubeconfig", core, "Cluster"),
	}
	w.quiesce()
	if s.prepare != nil {
		s.prepare(w)
		w.quiesce()
	}
	return w
}

func (w *world) secret(name string, owner client.Object, kind string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: w.Meta(name)}
	version := clusterv1.GroupVersion
	if kind == "ElementalRegistration" {
		version = infrav1.GroupVersion
	}
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: version.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}}
	w.Create(secret)
	return secret
}

// quiesce lets everybody act until nobody does anything any more.
func (w *world) quiesce() {
	w.T.Helper()
	request := func(o client.Object) ctrl.Request { return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)} }
	reconcilers := map[reconcile.Reconciler][]client.Object{
		&cluster.Reconciler{Client: w.Client, APIReader: w.Admin, Recorder: w.Recorder, Clock: w.Clock}: {w.objects["ElementalCluster"]},
		&machine.Reconciler{Client: w.Client, APIReader: w.Admin, Recorder: w.Recorder, Clock: w.Clock}: {w.machine},
		&host.Reconciler{Client: w.Client, APIReader: w.Admin, Recorder: w.Recorder, Clock: w.Clock}:    {w.host, w.spare},
	}
	const rounds = 30
	for round := range rounds {
		w.Client.Forget()
		w.changed = false
		for r, objects := range reconcilers {
			for _, o := range objects {
				if _, err := r.Reconcile(w.Ctx, request(o)); err != nil && !apierrors.IsConflict(err) {
					w.T.Fatalf("reconciling %s: %v", o.GetName(), err)
				}
			}
		}
		w.clusterAPI()
		w.agent()
		if round == 0 || w.changed || len(w.Client.Writes()) > 0 {
			w.collectGarbage()
		}
		if !w.changed && len(w.Client.Writes()) == 0 {
			return
		}
	}
	w.T.Fatalf("no rest after %d rounds: %v", rounds, w.Client.Writes())
}

// clusterAPI does the deletions that are core's: a Cluster takes its Machines and
// then its infrastructure along, a Machine its infrastructure.
func (w *world) clusterAPI() {
	w.T.Helper()
	core, infra := w.objects["Cluster"], w.objects["ElementalCluster"]
	if w.Exists(w.owner) && !w.owner.DeletionTimestamp.IsZero() {
		if w.vanish || !w.deleteAndLook(w.machine) {
			w.strip(w.owner)
		}
	}
	if w.Exists(core) && !core.GetDeletionTimestamp().IsZero() {
		if w.vanish || (!w.deleteAndLook(w.owner) && !w.deleteAndLook(infra)) {
			w.strip(core)
		}
	}
}

// deleteAndLook deletes an object and reports whether it is still there.
func (w *world) deleteAndLook(o client.Object) bool {
	w.T.Helper()
	if !w.Exists(o) {
		return false
	}
	if o.GetDeletionTimestamp().IsZero() {
		w.Delete(o)
		w.changed = true
	}
	return w.Exists(o)
}

func (w *world) strip(o client.Object) {
	w.T.Helper()
	w.Expect(w.Admin.Patch(w.Ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	w.changed = true
}

// collectGarbage deletes what has no owner any more.
func (w *world) collectGarbage() {
	w.T.Helper()
	for _, name := range []string{"Cluster", "Machine", "ElementalRegistration"} {
		owner := w.objects[name]
		if w.Exists(owner) {
			continue
		}
		for _, o := range w.objects {
			if refs := o.GetOwnerReferences(); len(refs) == 1 && refs[0].UID == owner.GetUID() {
				w.deleteAndLook(o)
			}
		}
	}
}

// left returns what is not gone yet.
func (w *world) left() []string {
	w.T.Helper()
	var names []string
	for name, o := range w.objects {
		if w.Exists(o) {
			names = append(names, fmt.Sprintf("%s with finalizers %v", name, o.GetFinalizers()))
		}
	}
	return names
}

// agent does what a connected host is told to.
func (w *world) agent() {
	w.T.Helper()
	if !w.Exists(w.host) || w.host.Status.Connection.State != infrav1.ConnectionConnected {
		return
	}
	op := plan.For(w.host, plan.Site{}, plan.Cluster{}).Operation
	if op == nil || op.Type != protocol.OperationReset {
		return
	}
	if is := w.host.Operation(infrav1.OperationReset, op.ID); is == nil || is.State != infrav1.OperationSucceeded {
		w.ReportOperation(w.host, infrav1.OperationReset, infrav1.OperationSucceeded)
		w.changed = true
	}
}

// Package deletion_test deletes all objects of a cluster in every order. No finalizer may
// ever have to be removed by hand.
//
// The tests call the reconcilers against a real API server, with a fake clock, until they
// write nothing. In between the tests do what Cluster API, the garbage collector and the
// agent would do, as far as the order of deletions depends on it.
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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// timeout is how long a deleted machine waits for its disconnected host.
const timeout = 20 * time.Second

// scenario is one cluster with one machine, and all objects that belong to them.
type scenario struct {
	*controllertest.Fixture

	objects map[string]client.Object
	owner   *clusterv1.Machine
	machine *infrav1.ElementalMachine
	host    *infrav1.ElementalHost
	spare   *infrav1.ElementalHost
	// vanish removes the finalizers of Cluster API from deleted Clusters and Machines at
	// once, as a user would do after Cluster API was uninstalled.
	vanish bool
	// changed is true if the test changed an object in this round, apart from the reconcilers.
	changed bool
}

// newScenario creates a cluster with a machine in the state.
func newScenario(t *testing.T, s state, vanish bool) *scenario {
	t.Helper()
	w := &scenario{Fixture: controllertest.New(t, env), vanish: vanish}
	live, err := client.NewWithWatch(env.Config, env.ClientOptions())
	w.Expect(err).NotTo(HaveOccurred())
	caching := newCachingClient(live)
	w.Admin, w.Client = caching, controllertest.Wrap(t, caching, index.Register)
	capable := func(h *infrav1.ElementalHost) {
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset"}}
	}
	w.host = w.Host("h1", capable)
	w.spare = w.Host("h2", capable, func(h *infrav1.ElementalHost) {
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

func (w *scenario) secret(name string, owner client.Object, kind string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: w.Meta(name)}
	version := clusterv1.GroupVersion
	if kind == "ElementalRegistration" {
		version = infrav1.GroupVersion
	}
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: version.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}}
	w.Create(secret)
	return secret
}

// quiesce runs the reconcilers, Cluster API, the agent and the garbage collector until no
// object changes.
func (w *scenario) quiesce() {
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
	w.T.Fatalf("still writing after %d rounds: %v", rounds, w.Client.Writes())
}

// clusterAPI deletes objects as Cluster API does: with a Cluster its Machines and then its
// infrastructure, and with a Machine its infrastructure.
func (w *scenario) clusterAPI() {
	w.T.Helper()
	core, infra := w.objects["Cluster"], w.objects["ElementalCluster"]
	if w.Exists(w.owner) && !w.owner.DeletionTimestamp.IsZero() {
		if w.vanish || !w.deleteIfExists(w.machine) {
			w.removeFinalizers(w.owner)
		}
	}
	if w.Exists(core) && !core.GetDeletionTimestamp().IsZero() {
		if w.vanish || (!w.deleteIfExists(w.owner) && !w.deleteIfExists(infra)) {
			w.removeFinalizers(core)
		}
	}
}

// deleteIfExists deletes an object and reports whether it still exists afterwards.
func (w *scenario) deleteIfExists(o client.Object) bool {
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

// removeFinalizers removes all finalizers from the object.
func (w *scenario) removeFinalizers(o client.Object) {
	w.T.Helper()
	w.Expect(w.Admin.Patch(w.Ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	w.changed = true
}

// collectGarbage deletes the objects whose owner no longer exists.
func (w *scenario) collectGarbage() {
	w.T.Helper()
	for _, name := range []string{"Cluster", "Machine", "ElementalRegistration"} {
		owner := w.objects[name]
		if w.Exists(owner) {
			continue
		}
		for _, o := range w.objects {
			if refs := o.GetOwnerReferences(); len(refs) == 1 && refs[0].UID == owner.GetUID() {
				w.deleteIfExists(o)
			}
		}
	}
}

// left returns the objects that still exist.
func (w *scenario) left() []string {
	w.T.Helper()
	var names []string
	for name, o := range w.objects {
		if w.Exists(o) {
			names = append(names, fmt.Sprintf("%s with finalizers %v", name, o.GetFinalizers()))
		}
	}
	return names
}

// agent reports a successful reset if the host is connected and its plan contains a reset.
func (w *scenario) agent() {
	w.T.Helper()
	if !w.Exists(w.host) || w.host.Status.Connection.State != infrav1.ConnectionConnected {
		return
	}
	op := plan.For(w.host, plan.Site{}, plan.Cluster{}).Operation
	if op == nil || op.Type != protocol.OperationReset {
		return
	}
	if reset := w.host.Operation(infrav1.OperationReset, op.ID); reset == nil || reset.State != infrav1.OperationSucceeded {
		w.ReportOperation(w.host, infrav1.OperationReset, infrav1.OperationSucceeded)
		w.changed = true
	}
}

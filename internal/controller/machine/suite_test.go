package machine_test

import (
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// fixture adds this package's reconciler to the common fixture.
type fixture struct {
	*controllertest.Fixture

	reconciler *machine.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env, machine.AddIndexes)}
	f.reconciler = f.newReconciler()
	return f
}

// newReconciler returns a reconciler without state in memory, as after a crash.
func (f *fixture) newReconciler() *machine.Reconciler {
	return &machine.Reconciler{
		Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock, Nominations: &placement.Nominations{},
	}
}

func request(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// reconcile reconciles a machine once and reads it.
func (f *fixture) reconcile(m *infrav1.ElementalMachine) ctrl.Result {
	f.T.Helper()
	result, err := f.reconciler.Reconcile(f.Ctx, request(m))
	f.Expect(err).NotTo(HaveOccurred())
	f.Exists(m)
	return result
}

// settle reconciles machines and hosts, each time with new reconcilers, until they write
// nothing.
func (f *fixture) settle(machines []*infrav1.ElementalMachine, hosts []*infrav1.ElementalHost) {
	f.T.Helper()
	const rounds = 20
	for range rounds {
		written := len(f.Client.Writes())
		failed := false
		check := func(err error) {
			f.T.Helper()
			if err != nil && !errors.Is(err, controllertest.ErrInjected) && !apierrors.IsConflict(err) {
				f.T.Fatalf("reconciling: %v", err)
			}
			failed = failed || err != nil
		}
		for _, m := range machines {
			_, err := f.newReconciler().Reconcile(f.Ctx, request(m))
			check(err)
		}
		hostReconciler := &host.Reconciler{Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock}
		for _, h := range hosts {
			_, err := hostReconciler.Reconcile(f.Ctx, request(h))
			check(err)
		}
		if !failed && len(f.Client.Writes()) == written {
			return
		}
	}
	f.T.Fatalf("still writing after %d rounds: %v", rounds, f.Client.Writes())
}

// claimOf returns the phase and the machine name of the host's claim.
func claimOf(h *infrav1.ElementalHost) string {
	if h.Spec.Claim == nil {
		return "free"
	}
	return string(h.Spec.Claim.Phase) + " " + h.Spec.Claim.MachineName
}

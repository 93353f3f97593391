package registration_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/registration"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/subscription"
)

// authority is an authority whose trust bundle changes.
type authority struct {
	bundle  atomic.Pointer[string]
	changed subscription.List
}

func (a *authority) Bundle(context.Context) (string, error) { return *a.bundle.Load(), nil }
func (a *authority) Subscribe(f func()) (stop func())       { return a.changed.Add(f) }

// agents has no binaries, or all.
type agents struct {
	all     atomic.Bool
	changed subscription.List
}

func (a *agents) Has(string) bool                  { return a.all.Load() }
func (a *agents) Subscribe(f func()) (stop func()) { return a.changed.Add(f) }

// Changes of the trust bundle and of the served binaries reach every registration without
// a restart.
func TestChangesReachAllRegistrations(t *testing.T) {
	g := NewWithT(t)
	admin, namespace := env.Client(t), env.Namespace(t)
	options := env.ManagerOptions()
	options.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
	mgr, err := ctrl.NewManager(env.Config, options)
	g.Expect(err).NotTo(HaveOccurred())
	ca, agents := &authority{}, &agents{}
	ca.bundle.Store(new(bundle))
	r := &registration.Reconciler{
		Client: mgr.GetClient(), Authority: ca, Agents: agents, Clock: clocktesting.NewFakeClock(time.Now()), URL: "https://agents.example.com",
	}
	g.Expect(r.SetupWithManager(t.Context(), mgr, controller.Options{})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-done).To(Succeed())
	})
	for _, name := range []string{"a", "b"} {
		object := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		object.Spec.Agent = &infrav1.AgentRelease{Version: "v0.2.0", Binaries: []infrav1.AgentBinary{
			{Architecture: "amd64", SHA256: strings.Repeat("a", 64)},
		}}
		g.Expect(admin.Create(t.Context(), object)).To(Succeed())
	}
	all := func(bundle, reason string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			for _, name := range []string{"a", "b"} {
				got := &infrav1.ElementalRegistration{}
				g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, got)).To(Succeed())
				g.Expect(got.Status.Endpoint.CABundle).To(Equal(bundle))
				c := meta.FindStatusCondition(got.Status.Conditions, "AgentBinariesReady")
				g.Expect(c).To(HaveField("Reason", reason))
				secret := &corev1.Secret{}
				g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name + "-token"}, secret)).To(Succeed())
				read, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(read.TrustBundle).To(Equal(bundle), "the agent configuration must contain the new trust bundle")
			}
		}, "1m", "20ms").Should(Succeed())
	}
	all(bundle, "BinariesMissing")
	ca.bundle.Store(new(bundle + bundle))
	ca.changed.Changed()
	all(bundle+bundle, "BinariesMissing")
	agents.all.Store(true)
	agents.changed.Changed()
	all(bundle+bundle, "BinariesServed")
}

package registration_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/registration"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/subscription"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

const bundle = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

type roots string

func (r roots) Bundle(context.Context) (string, error) { return string(r), nil }
func (roots) Subscribe(func()) func()                  { return func() {} }

// served are the digests of agents that can be fetched.
type served map[string]bool

func (s served) Has(digest string) bool       { return s[digest] }
func (served) Subscribe(func()) (stop func()) { return func() {} }

// fixture calls the reconciler directly, against a real API server.
type fixture struct {
	*WithT
	t          *testing.T
	client     client.Client
	reconciler *registration.Reconciler
	clock      *clocktesting.FakeClock
	key        client.ObjectKey
	writes     int
}

func newFixture(t *testing.T, change ...func(*infrav1.ElementalRegistration)) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakeClock(time.Now())}
	f.key = client.ObjectKey{Namespace: env.Namespace(t), Name: "edge"}
	plain, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	f.Expect(err).NotTo(HaveOccurred())
	f.client = plain
	counted := interceptor.NewClient(plain, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			f.writes++
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			f.writes++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			f.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	f.reconciler = &registration.Reconciler{Client: counted, Authority: roots(bundle), Agents: served{}, URL: "https://agents.example.com", Clock: f.clock}
	r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}}
	for _, c := range change {
		c(r)
	}
	f.Expect(f.client.Create(t.Context(), r)).To(Succeed())
	return f
}

func (f *fixture) reconcile() ctrl.Result {
	f.t.Helper()
	result, err := f.reconciler.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: f.key})
	f.Expect(err).NotTo(HaveOccurred())
	return result
}

func (f *fixture) get() *infrav1.ElementalRegistration {
	f.t.Helper()
	r := &infrav1.ElementalRegistration{}
	f.Expect(f.client.Get(f.t.Context(), f.key, r)).To(Succeed())
	return r
}

func (f *fixture) update(change func(*infrav1.ElementalRegistration)) {
	f.t.Helper()
	r := f.get()
	change(r)
	f.Expect(f.client.Update(f.t.Context(), r)).To(Succeed())
}

func (f *fixture) secret() *corev1.Secret {
	f.t.Helper()
	s := &corev1.Secret{}
	f.Expect(f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: "edge-token"}, s)).To(Succeed())
	return s
}

func (f *fixture) condition(kind string) (metav1.ConditionStatus, string) {
	f.t.Helper()
	c := meta.FindStatusCondition(f.get().Status.Conditions, kind)
	f.Expect(c).NotTo(BeNil(), kind)
	return c.Status, c.Reason
}

func (f *fixture) expectCondition(kind string, status metav1.ConditionStatus, reason string) {
	f.t.Helper()
	is, why := f.condition(kind)
	f.Expect([]string{string(is), why}).To(Equal([]string{string(status), reason}), kind)
}

func TestRegistrationIsPublished(t *testing.T) {
	f := newFixture(t)
	result := f.reconcile()
	f.Expect(f.writes).To(Equal(2), "the token Secret and one status")
	f.Expect(result.RequeueAfter).To(BeNumerically("~", 24*time.Hour, time.Minute))

	r := f.get()
	f.Expect(r.Status.Endpoint).To(Equal(infrav1.PublishedEndpoint{URL: "https://agents.example.com", CABundle: bundle}))
	f.Expect(r.Status.TokenSecretRef.Name).To(Equal("edge-token"))
	f.Expect(r.Status.TokenExpiresAt.Time).To(BeTemporally("~", f.clock.Now().Add(24*time.Hour), 2*time.Second))
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	f.expectCondition("EndpointReady", metav1.ConditionTrue, "Published")
	f.expectCondition("TokenValid", metav1.ConditionTrue, "Usable")
	f.expectCondition("Paused", metav1.ConditionFalse, "NotPaused")

	secret := f.secret()
	f.Expect(secret.Type).To(BeEquivalentTo(infrav1.TokenSecretType))
	f.Expect(secret.Labels).To(HaveKeyWithValue(infrav1.RegistrationLabel, "edge"))
	f.Expect(metav1.IsControlledBy(secret, r)).To(BeTrue())
	token, err := enrolment.ReadToken(secret)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(token.MaxUses).To(Equal(1))
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(config.Servers).To(Equal([]string{"https://agents.example.com"}))
	f.Expect(config.TrustBundle).To(Equal(bundle))
	f.Expect(token.Matches(config.Token)).To(BeTrue())

	for range 3 {
		f.reconcile()
	}
	f.Expect(f.writes).To(Equal(2), "at rest nothing is written")
}

func TestRegistrationWithoutURL(t *testing.T) {
	f := newFixture(t)
	f.reconciler.URL = ""
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionFalse, "EndpointUnknown")
	f.expectCondition("EndpointReady", metav1.ConditionFalse, "EndpointUnknown")
	f.expectCondition("TokenValid", metav1.ConditionFalse, "EndpointUnknown")
	f.Expect(f.get().Status.TokenSecretRef).To(BeNil())

	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Endpoint.URL = "https://10.1.2.3:8443/" })
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	f.Expect(f.get().Status.Endpoint.URL).To(Equal("https://10.1.2.3:8443"))

	// The configuration follows the URL and keeps its token.
	before, err := enrolment.DecodeAgentConfig(f.secret().Data[enrolment.ConfigKey])
	f.Expect(err).NotTo(HaveOccurred())
	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Endpoint.URL = "https://10.1.2.4:8443" })
	f.reconciler.Authority = roots(bundle + bundle)
	f.reconcile()
	after, err := enrolment.DecodeAgentConfig(f.secret().Data[enrolment.ConfigKey])
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(after).To(Equal(enrolment.AgentConfig{Servers: []string{"https://10.1.2.4:8443"}, TrustBundle: bundle + bundle, Token: before.Token}))
}

func TestTokenExpiresAndIsNotRenewed(t *testing.T) {
	f := newFixture(t, func(r *infrav1.ElementalRegistration) { r.Spec.Token = infrav1.TokenPolicy{TTLSeconds: 60, MaxUses: 5} })
	result := f.reconcile()
	f.Expect(result.RequeueAfter).To(BeNumerically("~", time.Minute, 2*time.Second))
	f.clock.Step(result.RequeueAfter)
	hash := f.secret().Data[enrolment.HashKey]
	for range 2 {
		f.Expect(f.reconcile().RequeueAfter).To(BeZero())
		f.expectCondition("TokenValid", metav1.ConditionFalse, "Expired")
		f.expectCondition("Ready", metav1.ConditionFalse, "Expired")
		f.Expect(f.secret().Data).NotTo(HaveKey(enrolment.ConfigKey))
		f.Expect(f.secret().Data[enrolment.HashKey]).To(Equal(hash))
	}

	f.Expect(f.client.Delete(t.Context(), f.secret())).To(Succeed())
	f.reconcile()
	f.expectCondition("TokenValid", metav1.ConditionTrue, "Usable")
	f.Expect(f.secret().Data[enrolment.HashKey]).NotTo(Equal(hash))
}

func TestTokenIsUsedUp(t *testing.T) {
	f := newFixture(t)
	f.reconcile()
	secret := f.secret()
	secret.Data[enrolment.UsedKey] = []byte("1")
	f.Expect(f.client.Update(t.Context(), secret)).To(Succeed())
	f.reconcile()
	f.expectCondition("TokenValid", metav1.ConditionFalse, "UsedUp")
	f.Expect(f.secret().Data).NotTo(HaveKey(enrolment.ConfigKey))

	// An administrator's own token makes the registration usable again.
	mine := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "mine", Labels: map[string]string{infrav1.RegistrationLabel: "edge"}},
		Type:       infrav1.TokenSecretType,
		StringData: map[string]string{
			enrolment.HashKey:      identity.HashToken("x"),
			enrolment.ExpiresAtKey: f.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			enrolment.ConfigKey:    "token: x\nextra: kept\n",
		},
	}
	f.Expect(f.client.Create(t.Context(), mine)).To(Succeed())
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	f.Expect(f.get().Status.TokenSecretRef.Name).To(Equal("mine"))
	f.Expect(f.client.Get(t.Context(), client.ObjectKeyFromObject(mine), mine)).To(Succeed())
	f.Expect(mine.OwnerReferences).To(HaveLen(1), "it moves with the registration")
	f.Expect(mine.OwnerReferences[0].Controller).To(BeNil())
	f.Expect(string(mine.Data[enrolment.ConfigKey])).To(Equal("token: x\nextra: kept\n"))
	writes := f.writes
	f.reconcile()
	f.Expect(f.writes).To(Equal(writes))
}

func TestPausedRegistration(t *testing.T) {
	f := newFixture(t, func(r *infrav1.ElementalRegistration) {
		r.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	f.reconcile()
	f.expectCondition("Paused", metav1.ConditionTrue, "Paused")
	err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: "edge-token"}, &corev1.Secret{})
	f.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	f.update(func(r *infrav1.ElementalRegistration) { r.Annotations = nil })
	f.reconcile()
	f.expectCondition("Paused", metav1.ConditionFalse, "NotPaused")
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
}

func TestRegistrationsOfOthers(t *testing.T) {
	f := newFixture(t)
	f.reconciler.WatchFilter = "mine"
	f.reconcile()
	f.Expect(f.writes).To(BeZero())
	f.Expect(f.client.Delete(t.Context(), f.get())).To(Succeed())
	f.reconcile()
}

// What is pinned and can't be fetched is named; hosts can enrol all the same.
func TestPinnedAgents(t *testing.T) {
	amd64, arm64 := strings.Repeat("a", 64), strings.Repeat("b", 64)
	f := newFixture(t, func(r *infrav1.ElementalRegistration) {
		r.Spec.Agent = &infrav1.AgentRelease{Version: "v0.2.0", Binaries: []infrav1.AgentBinary{
			{Architecture: "amd64", SHA256: amd64}, {Architecture: "arm64", SHA256: arm64},
		}}
	})
	f.reconciler.Agents = served{amd64: true}
	f.reconcile()
	f.expectCondition("AgentBinariesReady", metav1.ConditionFalse, "BinariesMissing")
	message := meta.FindStatusCondition(f.get().Status.Conditions, "AgentBinariesReady").Message
	f.Expect(message).To(And(HaveSuffix("arm64 ("+arm64+")"), Not(ContainSubstring("amd64"))))
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")

	f.reconciler.Agents = served{amd64: true, arm64: true}
	f.reconcile()
	f.expectCondition("AgentBinariesReady", metav1.ConditionTrue, "BinariesServed")
	writes := f.writes
	f.reconcile()
	f.Expect(f.writes).To(Equal(writes))

	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Agent = nil })
	f.reconcile()
	f.Expect(meta.FindStatusCondition(f.get().Status.Conditions, "AgentBinariesReady")).To(BeNil())
}

// authority has roots that change.
type authority struct {
	bundle  atomic.Pointer[string]
	changed subscription.List
}

func (a *authority) Bundle(context.Context) (string, error) { return *a.bundle.Load(), nil }
func (a *authority) Subscribe(f func()) (stop func())       { return a.changed.Add(f) }

// agents has none, then all.
type agents struct {
	all     atomic.Bool
	changed subscription.List
}

func (a *agents) Has(string) bool                  { return a.all.Load() }
func (a *agents) Subscribe(f func()) (stop func()) { return a.changed.Add(f) }

// A change of the roots, or of the agents that are there, reaches every
// registration without a restart.
func TestChangesReachAllRegistrations(t *testing.T) {
	g := NewWithT(t)
	admin, namespace := env.Client(t), env.Namespace(t)
	skip := true
	mgr, err := ctrl.NewManager(env.Config, ctrl.Options{
		Scheme: env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
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
				g.Expect(read.TrustBundle).To(Equal(bundle), "new hosts know the roots as well")
			}
		}, "20s", "20ms").Should(Succeed())
	}
	all(bundle, "BinariesMissing")
	ca.bundle.Store(new(bundle + bundle))
	ca.changed.Changed()
	all(bundle+bundle, "BinariesMissing")
	agents.all.Store(true)
	agents.changed.Changed()
	all(bundle+bundle, "BinariesServed")
}

package registration_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/registration"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

const bundle = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

// roots is the trust bundle of an authority that does not change.
type roots string

func (r roots) Bundle(context.Context) (string, error) { return string(r), nil }
func (roots) Subscribe(func()) func()                  { return func() {} }

// served contains the digests of the agent binaries that can be downloaded.
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

package extension_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/extension"
)

// rig is an API server with the kind ExtensionConfig, unless failing says otherwise.
type rig struct {
	*WithT

	t       *testing.T
	client  client.Client
	clock   *clocktesting.FakeClock
	failing error
	options extension.Options
	writes  int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakeClock(time.Now())}
	scheme := runtime.NewScheme()
	r.Expect(runtimev1.AddToScheme(scheme)).To(Succeed())
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if r.failing != nil {
				return r.failing
			}
			r.writes++
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			r.writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	r.options = extension.Options{
		Client: r.client, Reader: r.client, Clock: r.clock, Enabled: true,
		Service: types.NamespacedName{Namespace: "elemental-system", Name: "elemental-webhook-service"},
		Secret:  types.NamespacedName{Namespace: "elemental-system", Name: "elemental-webhook-service-cert"},
	}
	return r
}

func (r *rig) keep() {
	r.t.Helper()
	r.Expect(extension.New(r.options).Apply(r.t.Context())).To(Succeed())
}

// get returns the ExtensionConfig; nil if it is missing.
func (r *rig) get() *runtimev1.ExtensionConfig {
	r.t.Helper()
	e := &runtimev1.ExtensionConfig{}
	err := r.client.Get(r.t.Context(), client.ObjectKey{Name: "elemental-in-place"}, e)
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.Expect(err).NotTo(HaveOccurred())
	return e
}

func TestApply(t *testing.T) {
	r := newRig(t)
	r.keep()
	e := r.get()
	r.Expect(e.Labels).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "infrastructure-elemental"))
	r.Expect(e.Annotations).To(HaveKeyWithValue("runtime.cluster.x-k8s.io/inject-ca-from-secret", "elemental-system/elemental-webhook-service-cert"))
	r.Expect(e.Spec.ClientConfig.Service.Name).To(Equal("elemental-webhook-service"))
	r.Expect(e.Spec.NamespaceSelector.MatchLabels).To(Equal(map[string]string{"infrastructure.cluster.x-k8s.io/elemental-in-place": "true"}))

	t.Log("What Cluster API has written stays, and nothing is written without a difference")
	e.Spec.ClientConfig.CABundle = []byte("ca")
	r.Expect(r.client.Update(t.Context(), e)).To(Succeed())
	r.writes = 0
	r.keep()
	r.Expect(r.writes).To(BeZero())
	r.Expect(r.get().Spec.ClientConfig.CABundle).To(Equal([]byte("ca")))

	t.Log("What somebody has changed is put right")
	e = r.get()
	e.Spec.NamespaceSelector = &metav1.LabelSelector{}
	r.Expect(r.client.Update(t.Context(), e)).To(Succeed())
	r.options.Namespace = "n"
	r.keep()
	r.Expect(r.get().Spec.NamespaceSelector.MatchLabels).To(HaveLen(2))

	r.options.Enabled = false
	r.keep()
	r.Expect(r.get()).To(BeNil())
	r.keep()
}

func TestURL(t *testing.T) {
	r := newRig(t)
	r.keep()
	r.options.URL, r.options.CABundle = "https://127.0.0.1:9443", []byte("ca")
	r.keep()
	e := r.get()
	r.Expect(e.Spec.ClientConfig).To(Equal(runtimev1.ClientConfig{URL: "https://127.0.0.1:9443", CABundle: []byte("ca")}))
	r.Expect(e.Annotations).NotTo(HaveKey("runtime.cluster.x-k8s.io/inject-ca-from-secret"))
}

func TestForeignExtensionConfigIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.Expect(r.client.Create(t.Context(), &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "elemental-in-place"}})).To(Succeed())
	r.Expect(extension.New(r.options).Apply(t.Context())).To(MatchError(ContainSubstring("not this provider's")))
	r.options.Enabled = false
	r.keep()
	r.Expect(r.get()).NotTo(BeNil())
}

// Cluster API may be installed or get its feature gate later than this provider.
func TestStartTriesAgain(t *testing.T) {
	r := newRig(t)
	r.failing = errors.New("spec: Forbidden: can be set only if the RuntimeSDK feature flag is enabled")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- extension.New(r.options).Start(ctx) }()
	r.Eventually(r.clock.HasWaiters).Should(BeTrue())
	r.Expect(r.get()).To(BeNil())
	r.failing = nil
	r.clock.Step(10 * time.Second)
	r.Eventually(func() bool { return r.get() != nil && r.clock.HasWaiters() }).Should(BeTrue())
	cancel()
	r.Expect(<-ended).To(Succeed())
}

package kubernetesrelease_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/kubernetesrelease"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/subscription"
)

// bundles are the bundles that the manager serves.
type bundles struct {
	mu      sync.Mutex
	served  []string
	scanned bool
	changed subscription.List
}

func (b *bundles) Has(digest string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.served, digest)
}

func (b *bundles) Scanned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.scanned
}

func (b *bundles) Subscribe(f func()) (stop func()) { return b.changed.Add(f) }

// set changes what is served.
func (b *bundles) set(scanned bool, served ...string) {
	b.mu.Lock()
	b.served, b.scanned = served, scanned
	b.mu.Unlock()
	b.changed.Changed()
}

var amd64, arm64 = strings.Repeat("a", 64), strings.Repeat("b", 64)

func release(namespace string, changes ...func(*infrav1.ElementalKubernetesRelease)) *infrav1.ElementalKubernetesRelease {
	r := &infrav1.ElementalKubernetesRelease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "v1.36.3"}}
	r.Spec = infrav1.ElementalKubernetesReleaseSpec{Version: "v1.36.3", Bundles: []infrav1.KubernetesBundle{
		{Architecture: "amd64", SHA256: amd64, SizeBytes: 1},
		{Architecture: "arm64", SHA256: arm64, SizeBytes: 1, Sources: []string{"https://mirror.example.com/x", "manager"}},
	}}
	for _, change := range changes {
		change(r)
	}
	return r
}

func TestBundlesReady(t *testing.T) {
	mirrorOnly := func(r *infrav1.ElementalKubernetesRelease) {
		for i := range r.Spec.Bundles {
			r.Spec.Bundles[i].Sources = []string{"https://mirror.example.com/manager", "file:/usb/manager"}
		}
	}
	const prefix = "No file in the manager's --bundles has the SHA-256 that is pinned for "
	type state struct {
		scanned bool
		served  []string
		want    []string
	}
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalKubernetesRelease)
		states []state
	}{
		"served": {func(*infrav1.ElementalKubernetesRelease) {}, []state{{true, []string{amd64, arm64}, []string{"True", "BundlesServed", ""}}}},
		"missing, then found": {func(*infrav1.ElementalKubernetesRelease) {}, []state{
			{true, nil, []string{"False", "BundlesMissing", prefix + "amd64 (" + amd64 + "), arm64 (" + arm64 + ")"}},
			{true, []string{amd64}, []string{"False", "BundlesMissing", prefix + "arm64 (" + arm64 + ")"}},
			{true, []string{amd64, arm64}, []string{"True", "BundlesServed", ""}},
		}},
		"mirrors only": {mirrorOnly, []state{{true, nil, []string{"True", "BundlesServed", ""}}}},
		"the manager starts": {func(*infrav1.ElementalKubernetesRelease) {}, []state{
			{false, []string{amd64}, []string{"Unknown", "BundlesHashing", "The manager is still reading the files in its --bundles"}},
			{true, []string{amd64, arm64}, []string{"True", "BundlesServed", ""}},
			{false, nil, []string{"True", "BundlesServed", ""}},
			{true, []string{amd64}, []string{"False", "BundlesMissing", prefix + "arm64 (" + arm64 + ")"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := env.Client(t)
			r := release(env.Namespace(t), tc.change)
			g.Expect(c.Create(t.Context(), r)).To(Succeed())
			for _, at := range tc.states {
				served := &bundles{}
				served.set(at.scanned, at.served...)
				reconciler := &kubernetesrelease.Reconciler{Client: c, Bundles: served, Clock: clocktesting.NewFakeClock(time.Now())}
				before := ""
				for range 2 {
					_, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)})
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(r), r)).To(Succeed())
					if before != "" {
						g.Expect(r.ResourceVersion).To(Equal(before), "an unchanged release must not be written")
					}
					before = r.ResourceVersion
				}
				is := meta.FindStatusCondition(r.Status.Conditions, infrav1.BundlesReadyCondition)
				g.Expect([]string{string(is.Status), is.Reason, is.Message}).To(Equal(at.want))
			}
		})
	}
}

// A file that is found or removed reaches the releases without a restart.
func TestChangesReachReleases(t *testing.T) {
	g := NewWithT(t)
	admin, namespace := env.Client(t), env.Namespace(t)
	options := env.ManagerOptions()
	options.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
	mgr, err := ctrl.NewManager(env.Config, options)
	g.Expect(err).NotTo(HaveOccurred())
	served := &bundles{}
	served.set(true)
	reconciler := &kubernetesrelease.Reconciler{Client: mgr.GetClient(), Bundles: served, Clock: clocktesting.NewFakeClock(time.Now())}
	g.Expect(reconciler.SetupWithManager(t.Context(), mgr, controller.Options{})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-done).To(Succeed())
	})
	r := release(namespace)
	g.Expect(admin.Create(t.Context(), r)).To(Succeed())
	reason := func(g Gomega) string {
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(r), r)).To(Succeed())
		is := meta.FindStatusCondition(r.Status.Conditions, infrav1.BundlesReadyCondition)
		g.Expect(is).NotTo(BeNil())
		return is.Reason
	}
	g.Eventually(reason, "1m", "20ms").Should(Equal("BundlesMissing"))
	served.set(true, amd64, arm64)
	g.Eventually(reason, "1m", "20ms").Should(Equal("BundlesServed"))
	served.set(true, amd64)
	g.Eventually(reason, "1m", "20ms").Should(Equal("BundlesMissing"))
}

func TestInvalidReleases(t *testing.T) {
	g := NewWithT(t)
	c, namespace := env.Client(t), env.Namespace(t)
	sources := func(list ...string) func(*infrav1.ElementalKubernetesRelease) {
		return func(r *infrav1.ElementalKubernetesRelease) { r.Spec.Bundles[0].Sources = list }
	}
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalKubernetesRelease)
		want   string
	}{
		"another name":                {func(r *infrav1.ElementalKubernetesRelease) { r.Name = "v1.36.4" }, "the name must be the version"},
		"one source twice":            {sources("manager", "manager"), "Duplicate value"},
		"a password in a URL":         {sources("https://user:secret@mirror.example.com/x"), "must not have a user name or password"},
		"a user name in a URL":        {sources("http://user@mirror.example.com"), "must not have a user name or password"},
		"another scheme":              {sources("ftp://mirror.example.com/x"), "should match"},
		"a relative path":             {sources("file:x"), "should match"},
		"a digest in capitals":        {func(r *infrav1.ElementalKubernetesRelease) { r.Spec.Bundles[0].SHA256 = strings.Repeat("A", 64) }, "should match"},
		"one architecture twice":      {func(r *infrav1.ElementalKubernetesRelease) { r.Spec.Bundles[1].Architecture = "amd64" }, "Duplicate value"},
		"more than a bundle can have": {func(r *infrav1.ElementalKubernetesRelease) { r.Spec.Bundles[0].SizeBytes = 4<<30 + 1 }, "should be less than or equal"},
		"no bundle":                   {func(r *infrav1.ElementalKubernetesRelease) { r.Spec.Bundles = nil }, "spec.bundles"},
	} {
		err := c.Create(t.Context(), release(namespace, tc.change))
		g.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", name, err)
		g.Expect(err).To(MatchError(ContainSubstring(tc.want)), name)
	}
	r := release(namespace, sources("manager", "https://mirror.example.com/a@b", "file:/media/usb/x@y"))
	g.Expect(c.Create(t.Context(), r)).To(Succeed())
	r.Spec.Bundles[0].SHA256 = strings.Repeat("c", 64)
	g.Expect(c.Update(t.Context(), r)).To(MatchError(ContainSubstring("a release is immutable")))
	custom := release(namespace, func(r *infrav1.ElementalKubernetesRelease) { r.Name, r.Spec.Version = "v1.36.3-k3s1", "v1.36.3+k3s1" })
	g.Expect(c.Create(t.Context(), custom)).To(Succeed())
}

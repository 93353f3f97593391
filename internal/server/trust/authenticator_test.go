package trust

import (
	"context"
	"crypto/ecdsa"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// fixture is an Authenticator with one host, after the grace period of its start.
type fixture struct {
	*Authenticator

	g      *WithT
	client client.Client
	// stale is the host's state before change was called.
	stale  *infrav1.ElementalHost
	events *events.FakeRecorder
	woken  int
}

// AddNext implements Keys.
func (f *fixture) AddNext(context.Context, string, string, string) error { return nil }

// Wake implements Waker.
func (f *fixture) Wake(context.Context, types.NamespacedName) { f.woken++ }

// newFixture stores a host with the current key "current", the next key "next" and the
// former key "former". beforePatch is called before each write.
func newFixture(t *testing.T, beforePatch func(client.Client)) *fixture {
	t.Helper()
	f := &fixture{g: NewWithT(t), events: events.NewFakeRecorder(10)}
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "host-1", UID: "uid"}}
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "current", NextKeyFingerprint: "next", FormerKeyFingerprint: "former", Generation: 2}
	host.Spec.Approval = infrav1.ApprovalApproved
	scheme := runtime.NewScheme()
	f.g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host).WithStatusSubresource(host)
	for field, values := range index.OfHosts() {
		builder.WithIndex(&infrav1.ElementalHost{}, field, values)
	}
	f.client = builder.Build()
	intercepted := interceptor.NewClient(f.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if beforePatch != nil {
				beforePatch(c)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	log, err := audit.New(clock, prometheus.NewRegistry())
	f.g.Expect(err).NotTo(HaveOccurred())
	timers := timer.NewQueue(clock)
	f.Authenticator = New(Options{
		Hosts: hoststore.New(hoststore.Options{Client: intercepted, APIReader: f.client, Clock: clock, Timers: timers, Recorder: f.events}),
		Keys:  f, Audit: log, Polls: f, Recorder: f.events, Clock: clock, Timers: timers,
	})
	clock.Step(formerKeyGrace)
	f.stale = f.stored()
	return f
}

// stored returns the host from the API server.
func (f *fixture) stored() *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{}
	f.g.Expect(f.client.Get(context.Background(), types.NamespacedName{Namespace: "edge", Name: "host-1"}, host)).To(Succeed())
	return host
}

// change writes the host.
func (f *fixture) change(change func(*infrav1.ElementalHost)) {
	host := f.stored()
	change(host)
	f.g.Expect(f.client.Update(context.Background(), host)).To(Succeed())
}

func (f *fixture) expectProblem(err error, status int, kind string) {
	f.g.THelper()
	f.g.Expect(err).To(HaveField("Problem", And(HaveField("Status", status), HaveField("Type", kind))))
}

// bindOther changes the host so that another machine is bound to it.
func bindOther(host *infrav1.ElementalHost) {
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "other", Generation: 3}
}

// An administrator may bind another machine while a request with the former key waits. The
// newest state proves no copy then.
func TestFormerKeyOfAnOutdatedStateDoesNotLock(t *testing.T) {
	f := newFixture(t, nil)
	f.change(bindOther)
	_, err := f.Authorize(t.Context(), f.stale, hoststore.KeyFormer, "former", true)
	f.expectProblem(err, http.StatusServiceUnavailable, problem.Blank)
	f.g.Expect(f.stored().Spec.Lock).To(BeNil())
	f.g.Expect(f.events.Events).NotTo(Receive())
}

func TestHostIsLockedOnce(t *testing.T) {
	f := newFixture(t, nil)
	for range 2 {
		_, err := f.Authorize(t.Context(), f.stale, hoststore.KeyFormer, "former", true)
		f.expectProblem(err, http.StatusForbidden, protocol.ProblemLocked)
	}
	f.g.Expect(f.stored().Spec.Lock.Reason).To(Equal(infrav1.LockCloned))
	f.g.Expect(f.woken).To(Equal(1))
	f.g.Expect(f.events.Events).To(Receive())
	f.g.Expect(f.events.Events).NotTo(Receive())
}

func TestReturnedBootOfAnOutdatedKeyDoesNotLock(t *testing.T) {
	f := newFixture(t, nil)
	f.change(bindOther)
	f.expectProblem(f.LockReturnedBoot(t.Context(), f.stale, "current"), http.StatusServiceUnavailable, problem.Blank)
	f.g.Expect(f.stored().Spec.Lock).To(BeNil())
}

// Two requests with the next key may both read the state before the first promotes it.
func TestNextKeyIsPromotedOnce(t *testing.T) {
	f := newFixture(t, nil)
	for range 2 {
		host, err := f.Authorize(t.Context(), f.stale, hoststore.KeyNext, "next", true)
		f.g.Expect(err).NotTo(HaveOccurred())
		f.g.Expect(host.Spec.Identity).To(Equal(&infrav1.HostIdentity{KeyFingerprint: "next", FormerKeyFingerprint: "current", Generation: 3}))
	}
	f.g.Expect(f.woken).To(Equal(1))
	_, err := f.Authenticate(t.Context(), "current", types.NamespacedName{}, true)
	f.expectProblem(err, http.StatusConflict, protocol.ProblemStaleGeneration)
	f.g.Expect(f.stored().Spec.Lock).To(BeNil(), "the former key is only refused right after the rotation")
}

func TestNextKeyThatWasWithdrawnIsNotPromoted(t *testing.T) {
	f := newFixture(t, nil)
	f.change(bindOther)
	_, err := f.Authorize(t.Context(), f.stale, hoststore.KeyNext, "next", true)
	f.expectProblem(err, http.StatusUnauthorized, protocol.ProblemUnknownHost)
	f.g.Expect(f.stored().Spec.Identity.KeyFingerprint).To(Equal("other"))
}

// Two announcements of different keys at the same time must not overwrite each other.
func TestRotateReturnsBusyAfterAConflict(t *testing.T) {
	g := NewWithT(t)
	current, key := newKey(g), newKey(g)
	spki, err := identity.PublicKeyBytes(current)
	g.Expect(err).NotTo(HaveOccurred())
	fingerprint := identity.Fingerprint(spki)
	request := protocol.RotateRequest{Generation: 2}
	request.PublicKey, err = identity.PublicKeyBytes(key)
	g.Expect(err).NotTo(HaveOccurred())
	request.Signature, err = identity.SignRotation(key, fingerprint)
	g.Expect(err).NotTo(HaveOccurred())

	f := newFixture(t, func(c client.Client) {
		host := &infrav1.ElementalHost{}
		g.Expect(c.Get(t.Context(), types.NamespacedName{Namespace: "edge", Name: "host-1"}, host)).To(Succeed())
		host.Spec.Identity.NextKeyFingerprint = "first"
		g.Expect(c.Update(t.Context(), host)).To(Succeed())
	})
	f.change(func(host *infrav1.ElementalHost) {
		host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: fingerprint, Generation: 2}
	})
	f.expectProblem(f.Rotate(t.Context(), f.stale, fingerprint, request), http.StatusServiceUnavailable, problem.Blank)
	f.g.Expect(f.stored().Spec.Identity.NextKeyFingerprint).To(Equal("first"))
}

func newKey(g *WithT) *ecdsa.PrivateKey {
	key, err := identity.NewKey()
	g.Expect(err).NotTo(HaveOccurred())
	return key
}

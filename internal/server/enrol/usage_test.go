package enrol

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// usageFixture is a tokenUsage with one token Secret.
type usageFixture struct {
	*tokenUsage

	g      *WithT
	secret *corev1.Secret
	hash   string
	// beforePatch is called before each write, with its number, starting at 1. It runs on
	// one goroutine at a time.
	beforePatch func(int)
	patches     int
	// forgotten counts hosts that the token had to forget.
	forgotten int
}

func newUsageFixture(t *testing.T, maxUses int) *usageFixture {
	t.Helper()
	f := &usageFixture{g: NewWithT(t), hash: identity.HashToken("token"), beforePatch: func(int) {}}
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	f.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "token", Labels: map[string]string{infrav1.RegistrationLabel: "edge"}}, Type: infrav1.TokenSecretType,
		Data: map[string][]byte{enrolment.ConfigKey: []byte("token: token")},
	}
	enrolment.Token{Hash: f.hash, ExpiresAt: clock.Now().Add(time.Hour), MaxUses: maxUses}.WriteTo(f.secret)
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(f.secret).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			f.patches++
			f.beforePatch(f.patches)
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	f.tokenUsage = newTokenUsage(c, c, clock, func(_ context.Context, _ *corev1.Secret, hosts int) { f.forgotten += hosts })
	f.secret = f.stored()
	return f
}

// stored returns the Secret from the API server.
func (f *usageFixture) stored() *corev1.Secret {
	stored := &corev1.Secret{}
	f.g.Expect(f.live.Get(context.Background(), client.ObjectKeyFromObject(f.secret), stored)).To(Succeed())
	return stored
}

// used returns the stored number of uses.
func (f *usageFixture) used() string { return string(f.stored().Data[enrolment.UsedKey]) }

// waitingUses returns how many uses wait for the next write.
func (f *usageFixture) waitingUses() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting[client.ObjectKeyFromObject(f.secret)])
}

func TestUsesDuringAWriteShareTheNextOne(t *testing.T) {
	f := newUsageFixture(t, 4)
	begun, proceed := make(chan struct{}), make(chan struct{})
	f.beforePatch = func(n int) {
		if n == 1 {
			close(begun)
			<-proceed
		}
	}
	results := make(chan error, 10)
	add := func(ctx context.Context) {
		go func() { results <- f.add(ctx, f.secret, f.hash, "sha256:0123456789abcdef") }()
	}
	add(t.Context())
	<-begun
	disconnected, disconnect := context.WithCancel(t.Context())
	add(disconnected)
	f.g.Eventually(f.waitingUses, soon).Should(Equal(1))
	disconnect()
	f.g.Expect(<-results).To(MatchError(context.Canceled))
	for range 4 {
		add(t.Context())
	}
	f.g.Eventually(f.waitingUses, soon).Should(Equal(5))
	close(proceed)
	var refused int
	for range 5 {
		if err := <-results; errors.Is(err, errNotUsable) {
			refused++
		} else {
			f.g.Expect(err).NotTo(HaveOccurred())
		}
	}
	f.wait()
	f.g.Expect(refused).To(Equal(1), "the token has four uses")
	f.g.Expect(f.used()).To(Equal("4"), "a use whose caller has disconnected is not counted")
	f.g.Expect(f.patches).To(Equal(2))
	f.g.Expect(f.waiting).To(BeEmpty())
	f.g.Expect(f.stored().Data).NotTo(HaveKey(enrolment.ConfigKey), "a used-up token is kept as a hash only")
}

// Another manager counts a use of the token between the read and the write of this one.
func TestThreat02_UseCountedByAnotherManager(t *testing.T) {
	f := newUsageFixture(t, 3)
	f.beforePatch = func(n int) {
		if n > 1 {
			return
		}
		changed := f.stored()
		changed.Data[enrolment.UsedKey] = []byte("1")
		f.g.Expect(f.client.Update(t.Context(), changed)).To(Succeed())
	}
	f.g.Expect(f.add(t.Context(), f.secret, f.hash, "sha256:0123456789abcdef")).To(Succeed())
	f.wait()
	f.g.Expect(f.patches).To(Equal(2))
	f.g.Expect(f.used()).To(Equal("2"))
	f.g.Expect(f.stored().Data).To(HaveKey(enrolment.ConfigKey))
}

func TestUseOfAReplacedTokenIsRefused(t *testing.T) {
	f := newUsageFixture(t, 3)
	f.g.Expect(f.add(t.Context(), f.secret, identity.HashToken("former"), "sha256:0123456789abcdef")).To(MatchError(errNotUsable))
	f.wait()
}

// The deletion of its Secret revokes a token at once, also while the cache has the Secret.
func TestThreat01_SecretIsDeleted(t *testing.T) {
	f := newUsageFixture(t, 3)
	f.g.Expect(f.client.Delete(t.Context(), f.secret)).To(Succeed())
	f.g.Expect(f.add(t.Context(), f.secret, f.hash, "sha256:0123456789abcdef")).To(MatchError(errNotUsable))
	f.wait()
}

func TestRevertSubtractsOneUse(t *testing.T) {
	f := newUsageFixture(t, 3)
	before := f.secret
	f.g.Expect(f.add(t.Context(), before, f.hash, "sha256:0123456789abcdef")).To(Succeed())
	f.g.Expect(f.revert(t.Context(), before, identity.HashToken("former"), "sha256:0123456789abcdef", true)).To(Succeed())
	f.g.Expect(f.used()).To(Equal("1"), "a use of another token of the Secret stays")
	for range 2 {
		f.g.Expect(f.revert(t.Context(), before, f.hash, "sha256:0123456789abcdef", true)).To(Succeed())
		f.g.Expect(f.used()).To(Equal("0"))
	}
	f.wait()
}

// The key of a use that is taken back is forgotten, unless it was known before: the host of a
// key that returns must not become a new one because its creation failed once.
func TestThreat55_FailedEnrolmentKeepsTheHistory(t *testing.T) {
	for _, returns := range []bool{false, true} {
		f := newUsageFixture(t, 3)
		history := NewKeyHistory(f.client, f.live)
		f.g.Expect(f.add(t.Context(), f.secret, f.hash, "sha256:0123456789abcdef")).To(Succeed())
		f.g.Expect(f.revert(t.Context(), f.secret, f.hash, "sha256:0123456789abcdef", !returns)).To(Succeed())
		f.wait()
		f.g.Expect(f.used()).To(Equal("0"))
		f.g.Expect(history.Contains(t.Context(), "edge", "sha256:0123456789abcdef")).To(Equal(returns))
	}
}

// Whoever enrols many hosts with one token can read that the oldest are not known any more.
func TestThreat55_ForgottenHostsAreRecorded(t *testing.T) {
	f := newUsageFixture(t, 10000)
	for i := range 2000 {
		enrolment.RememberKey(f.secret, fmt.Sprintf("sha256:%016d", i))
	}
	f.g.Expect(f.client.Update(t.Context(), f.secret)).To(Succeed())
	f.g.Expect(f.add(t.Context(), f.secret, f.hash, "sha256:new")).To(Succeed())
	f.wait()
	f.g.Expect(f.forgotten).To(Equal(1))
	f.g.Expect(enrolment.RemembersKey(f.stored(), "sha256:new")).To(BeTrue())
	f.g.Expect(enrolment.RemembersKey(f.stored(), fmt.Sprintf("sha256:%016d", 0))).To(BeFalse())
}

// The plain token is gone once it is of no more use: whoever reads the Secret later finds a
// hash.
func TestThreat01_UsedUpTokenIsAHash(t *testing.T) {
	f := newUsageFixture(t, 1)
	f.g.Expect(f.add(t.Context(), f.secret, f.hash, "sha256:0123456789abcdef")).To(Succeed())
	f.wait()
	f.g.Expect(f.stored().Data).NotTo(HaveKey(enrolment.ConfigKey))
	f.g.Expect(f.stored().Data).To(HaveKey(enrolment.HashKey))
}

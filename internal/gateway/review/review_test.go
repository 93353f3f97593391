package review_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/review"
)

// management answers reviews.
type management struct {
	client.Writer

	mu      sync.Mutex
	err     error
	users   map[string]string
	allowed map[string]bool
	// asked counts reviews.
	asked int
}

func (m *management) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	switch r := o.(type) {
	case *authenticationv1.TokenReview:
		name, ok := m.users[r.Spec.Token]
		r.Status.Authenticated, r.Status.User.Username, r.Status.User.Groups = ok, name, []string{"ops"}
		if !ok {
			r.Status.Error = "invalid bearer token"
		}
	case *authorizationv1.SubjectAccessReview:
		a := r.Spec.ResourceAttributes
		r.Status.Allowed = m.allowed[r.Spec.User+" "+a.Verb+" "+a.Resource+"/"+a.Subresource+" "+a.Namespace+"/"+a.Name]
	}
	return m.err
}

func (m *management) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

type rig struct {
	*WithT
	management *management
	clock      *clocktesting.FakePassiveClock
	users      authenticator.Request
	rights     authorizer.Authorizer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), clock: clocktesting.NewFakePassiveClock(time.Now()), management: &management{
		users: map[string]string{"secret": "ann"}, allowed: map[string]bool{"ann create clusters/proxy shop/c": true},
	}}
	o := review.Options{Client: r.management, Clock: r.clock}
	r.users = review.Authenticator(o, func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false })
	r.rights = review.Authorizer(o)
	return r
}

func (r *rig) authenticate(header, value string) (*authenticator.Response, bool, error) {
	request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	request.Header.Set(header, value)
	if header != "Authorization" {
		request.Header.Set("Connection", "Upgrade")
		request.Header.Set("Upgrade", "websocket")
	}
	return r.users.AuthenticateRequest(request)
}

func (r *rig) authorize(name, cluster string) (authorizer.Decision, error) {
	decision, _, err := r.rights.Authorize(context.Background(), authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name}, Verb: "create", Resource: "clusters", Subresource: "proxy", Namespace: "shop", Name: cluster, ResourceRequest: true,
	})
	return decision, err
}

func TestTokens(t *testing.T) {
	r := newRig(t)
	response, ok, err := r.authenticate("Authorization", "Bearer secret")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(ok).To(BeTrue())
	r.Expect(response.User.GetName()).To(Equal("ann"))
	r.Expect(response.User.GetGroups()).To(ConsistOf("ops", "system:authenticated"))

	// A WebSocket of a browser has it as a protocol.
	_, ok, err = r.authenticate("Sec-Websocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(ok).To(BeTrue())

	_, ok, err = r.authenticate("Authorization", "Bearer invented")
	r.Expect(ok).To(BeFalse())
	r.Expect(err).To(HaveOccurred())
	r.Expect(errors.Is(err, review.ErrUnavailable)).To(BeFalse())

	_, ok, err = r.authenticate("Authorization", "Basic YW5uOnNlY3JldA==")
	r.Expect(ok).To(BeFalse())
	r.Expect(err).NotTo(HaveOccurred())
}

// A decision is used for ten seconds, whatever it was.
func TestDecisionsAreKeptForTenSeconds(t *testing.T) {
	r := newRig(t)
	known := func(token string) bool {
		_, ok, _ := r.authenticate("Authorization", "Bearer "+token)
		return ok
	}
	may := func(cluster string) bool {
		decision, _ := r.authorize("ann", cluster)
		return decision == authorizer.DecisionAllow
	}
	r.Expect([]bool{known("secret"), known("new"), may("c"), may("d")}).To(Equal([]bool{true, false, true, false}))
	r.Expect(r.management.asked).To(Equal(4))
	r.management.change(func() {
		r.management.users, r.management.allowed = map[string]string{"new": "bob"}, map[string]bool{"ann create clusters/proxy shop/d": true}
	})
	r.clock.SetTime(r.clock.Now().Add(10*time.Second - time.Millisecond))
	r.Expect([]bool{known("secret"), known("new"), may("c"), may("d")}).To(Equal([]bool{true, false, true, false}))
	r.Expect(r.management.asked).To(Equal(4))
	r.clock.SetTime(r.clock.Now().Add(2 * time.Millisecond))
	r.Expect([]bool{known("secret"), known("new"), may("c"), may("d")}).To(Equal([]bool{false, true, false, true}))
}

// A management cluster that does not answer has refused nobody, and its answer is asked for
// again at once.
func TestUnavailable(t *testing.T) {
	r := newRig(t)
	r.management.change(func() { r.management.err = errors.New("no answer") })
	_, ok, err := r.authenticate("Authorization", "Bearer secret")
	r.Expect(ok).To(BeFalse())
	r.Expect(err).To(MatchError(review.ErrUnavailable))
	_, err = r.authorize("ann", "c")
	r.Expect(err).To(MatchError(review.ErrUnavailable))
	r.management.change(func() { r.management.err = nil })
	_, ok, err = r.authenticate("Authorization", "Bearer secret")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(ok).To(BeTrue())
	r.Expect(r.authorize("ann", "c")).To(Equal(authorizer.DecisionAllow))
}

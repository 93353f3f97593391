package impersonator_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/impersonator"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var environment *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { environment = e }))
}

// workload is the API server of a workload cluster.
type workload struct {
	*WithT
	admin client.Client
	clock *clocktesting.FakePassiveClock
	// requests counts the administrator's requests.
	requests int
	// reviewed are the resources and names that were reviewed.
	reviewed []string
}

func newWorkload(t *testing.T) *workload {
	t.Helper()
	w := &workload{WithT: NewWithT(t), admin: environment.Client(t), clock: clocktesting.NewFakePassiveClock(time.Now())}
	t.Cleanup(func() {
		for _, list := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
			w.Expect(w.admin.DeleteAllOf(context.Background(), list, client.HasLabels{"infrastructure.cluster.x-k8s.io/elemental-proxy"})).To(Succeed())
		}
	})
	return w
}

func (w *workload) account(t *testing.T) *impersonator.Account {
	t.Helper()
	config := rest.CopyConfig(environment.Config)
	c, err := client.NewWithWatch(config, client.Options{Scheme: environment.Scheme})
	w.Expect(err).NotTo(HaveOccurred())
	count := func() { w.requests++ }
	counted := interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
				w.reviewed = append(w.reviewed, review.Spec.ResourceAttributes.Resource+"/"+review.Spec.ResourceAttributes.Name)
			}
			return c.Create(ctx, o, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			count()
			return c.Get(ctx, key, o, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
			count()
			return c.SubResource(name).Create(ctx, o, sub, opts...)
		},
	})
	return impersonator.New(counted, w.clock)
}

// whoami asks the API server who the bearer of a token is, as somebody else.
func (w *workload) whoami(token, user string, groups ...string) (authenticationv1.UserInfo, error) {
	config := rest.AnonymousClientConfig(environment.Config)
	config.BearerToken = token
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{Scheme: environment.Scheme})
	w.Expect(err).NotTo(HaveOccurred())
	review := &authenticationv1.SelfSubjectReview{}
	err = c.Create(context.Background(), review)
	return review.Status.UserInfo, err
}

// The token can be the user who was let in, and nobody else, and nothing without a user.
func TestThreat20_ImpersonatesWhoWasLetIn(t *testing.T) {
	w := newWorkload(t)
	token, err := w.account(t).Token(t.Context(), proxy.Identity{User: "ann@example.org", Groups: []string{"dev", "ops"}})
	w.Expect(err).NotTo(HaveOccurred())

	// An API server learns roles a moment later, which no user notices.
	is, err := w.whoami(token, "ann@example.org", "dev", "ops")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(is.Username).To(Equal("ann@example.org"))
	w.Expect(is.Groups).To(ConsistOf("dev", "ops", "system:authenticated"))
	for name, other := range map[string][]string{
		"another user":          {"root"},
		"another group":         {"ann@example.org", "system:masters"},
		"another group as well": {"ann@example.org", "dev", "admins"},
	} {
		_, err := w.whoami(token, other[0], other[1:]...)
		w.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s: %v", name, err)
	}
	w.Expect(w.mayList(token)).To(BeFalse(), "the proxy itself has no rights")
}

// A user whose groups change has a role already, which says nothing of the new one.
func TestAwaitsEachName(t *testing.T) {
	w := newWorkload(t)
	a := w.account(t)
	_, err := a.Token(t.Context(), proxy.Identity{User: "ann", Groups: []string{"dev"}})
	w.Expect(err).NotTo(HaveOccurred())
	w.reviewed = nil
	token, err := a.Token(t.Context(), proxy.Identity{User: "ann", Groups: []string{"dev", "ops"}})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.reviewed).To(ContainElements("users/ann", "groups/dev", "groups/ops"))
	_, err = w.whoami(token, "ann", "dev", "ops")
	w.Expect(err).NotTo(HaveOccurred())
}

// A token that leaks is worth little for long.
func TestThreat20_TokensLiveForAnHour(t *testing.T) {
	w := newWorkload(t)
	token, err := w.account(t).Token(t.Context(), proxy.Identity{User: "ann"})
	w.Expect(err).NotTo(HaveOccurred())
	parts := strings.Split(token, ".")
	w.Expect(parts).To(HaveLen(3))
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	w.Expect(err).NotTo(HaveOccurred())
	var claims struct{ Exp, Iat int64 }
	w.Expect(json.Unmarshal(raw, &claims)).To(Succeed())
	w.Expect(claims.Exp - claims.Iat).To(BeEquivalentTo(3600))
}

// mayList reports whether the bearer may list Secrets.
func (w *workload) mayList(token string) bool {
	config := rest.AnonymousClientConfig(environment.Config)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: environment.Scheme})
	w.Expect(err).NotTo(HaveOccurred())
	err = c.List(context.Background(), &rbacv1.ClusterRoleList{})
	w.Expect(err == nil || apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	return err == nil
}

// A user without groups must not be able to become a member of all.
func TestThreat20_NoGroups(t *testing.T) {
	w := newWorkload(t)
	token, err := w.account(t).Token(t.Context(), proxy.Identity{User: "eve"})
	w.Expect(err).NotTo(HaveOccurred())
	w.Eventually(func() error {
		_, err := w.whoami(token, "eve")
		return err
	}, time.Minute).Should(Succeed())
	_, err = w.whoami(token, "eve", "ops")
	w.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
}

// Requests cost the workload cluster nothing while nothing is missing. What was removed there
// returns, and a token is renewed before its end.
func TestAsksOnlyWhenDue(t *testing.T) {
	w := newWorkload(t)
	a := w.account(t)
	ann := proxy.Identity{User: "ann", Groups: []string{"ops"}}
	first, err := a.Token(t.Context(), ann)
	w.Expect(err).NotTo(HaveOccurred())
	before := w.requests
	again, err := a.Token(t.Context(), ann)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(again).To(Equal(first))
	w.Expect(w.requests).To(Equal(before))

	role := w.roles()[0]
	w.Expect(w.admin.Delete(t.Context(), &role)).To(Succeed())
	w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
	_, err = a.Token(t.Context(), ann)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.roles()).To(HaveLen(1))

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "elemental-system", Name: "elemental-proxy"}}
	w.Expect(w.admin.Delete(t.Context(), account)).To(Succeed())
	w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
	of, err := a.Token(t.Context(), ann)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(of).NotTo(Equal(first), "the token of a deleted ServiceAccount is worth nothing")
	first = of

	w.clock.SetTime(w.clock.Now().Add(46 * time.Minute))
	renewed, err := a.Token(t.Context(), ann)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(renewed).NotTo(Equal(first))
}

func (w *workload) roles() []rbacv1.ClusterRole {
	list := &rbacv1.ClusterRoleList{}
	w.Expect(w.admin.List(context.Background(), list, client.HasLabels{"infrastructure.cluster.x-k8s.io/elemental-proxy"})).To(Succeed())
	return list.Items
}

// Roles that nobody uses go after 30 days, and there are never more than 500.
func TestThreat20_RolesAreBounded(t *testing.T) {
	w := newWorkload(t)
	used := func(i int) string {
		return w.clock.Now().Add(-time.Duration(i) * time.Hour * 24 / 20).UTC().Format(time.DateOnly)
	}
	for i := range 650 {
		meta := metav1.ObjectMeta{
			Name: fmt.Sprintf("elemental-proxy-%03d", i), Labels: map[string]string{"infrastructure.cluster.x-k8s.io/elemental-proxy": "user"},
			Annotations: map[string]string{"infrastructure.cluster.x-k8s.io/elemental-proxy-used": used(i)},
		}
		w.Expect(w.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta})).To(Succeed())
	}
	a := w.account(t)
	_, err := a.Token(t.Context(), proxy.Identity{User: "ann"})
	w.Expect(err).NotTo(HaveOccurred())
	left := w.roles()
	w.Expect(left).To(HaveLen(500))
	for _, role := range left {
		w.Expect(role.Name).NotTo(HaveSuffix("-600"), "the longest idle ones went")
	}
	w.clock.SetTime(w.clock.Now().Add(31 * 24 * time.Hour))
	_, err = a.Token(t.Context(), proxy.Identity{User: "bob"})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.roles()).To(HaveLen(1))
}

// silent is a workload cluster whose API server does not answer.
type silent struct{ client.Client }

func (silent) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// A cluster that does not answer keeps no caller for long, however many wait.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, a := NewWithT(t), impersonator.New(silent{}, clocktesting.NewFakePassiveClock(time.Now()))
		began := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := a.Token(context.Background(), proxy.Identity{User: "ann"})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got error %v", err)
				}
			})
		}
		all.Wait()
		g.Expect(time.Since(began)).To(Equal(30 * time.Second))
	})
}

// Whoever gives up does not wait for others.
func TestGivesUpWithItsContext(t *testing.T) {
	w := newWorkload(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.account(t).Token(ctx, proxy.Identity{User: "ann"})
	w.Expect(err).To(HaveOccurred())
}

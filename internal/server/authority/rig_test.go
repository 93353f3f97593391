package authority_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// rotation has an authority, its reconciler, which is called directly, and a TLS server with
// the authority's certificates.
type rotation struct {
	*WithT
	t          *testing.T
	client     client.Client
	namespace  string
	clock      *clocktesting.FakeClock
	authority  *authority.Authority
	reconciler *authority.Reconciler
	events     *events.FakeRecorder
	address    string
	// fail, if set, is the result of the next write of a Secret.
	fail error
	// writes counts updates of the Secret.
	writes int
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{WithT: NewWithT(t), t: t, namespace: env.Namespace(t), clock: clocktesting.NewFakeClock(time.Now())}
	plain, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	r.Expect(err).NotTo(HaveOccurred())
	r.client = interceptor.NewClient(plain, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := r.fail; err != nil {
				r.fail = nil
				return err
			}
			r.writes++
			return c.Update(ctx, o, opts...)
		},
	})
	r.restart()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return r.authority.Leaf(hello.Context(), []string{"127.0.0.1"})
		},
	})
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	r.address = listener.Addr().String()
	go serve(listener)
	return r
}

// serve completes handshakes until the listener is closed.
func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			if c, ok := conn.(*tls.Conn); ok && c.Handshake() == nil {
				_, _ = c.Read(make([]byte, 1))
			}
		}()
	}
}

// restart replaces the authority and the reconciler, as a new manager does.
func (r *rotation) restart() {
	r.events = events.NewFakeRecorder(100)
	r.authority = authority.New(r.client, r.client, r.namespace, r.clock)
	r.reconciler = &authority.Reconciler{
		Authority: r.authority, Hosts: client.NewNamespacedClient(r.client, r.namespace), Recorder: r.events, Clock: r.clock,
	}
	r.bundle()
}

func (r *rotation) bundle() string {
	r.t.Helper()
	bundle, err := r.authority.Bundle(r.t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	return bundle
}

func (r *rotation) secret() *corev1.Secret {
	r.t.Helper()
	secret := &corev1.Secret{}
	r.Expect(r.client.Get(r.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: authority.SecretName}, secret)).To(Succeed())
	return secret
}

// change changes the Secret as an administrator does.
func (r *rotation) change(f func(*corev1.Secret)) {
	r.t.Helper()
	secret := r.secret()
	before := secret.DeepCopy()
	f(secret)
	r.Expect(r.client.Patch(r.t.Context(), secret, client.MergeFrom(before))).To(Succeed())
}

func (r *rotation) ask(step string) {
	r.t.Helper()
	r.change(func(s *corev1.Secret) { s.Annotations = map[string]string{authority.RotationAnnotation: step} })
}

func (r *rotation) reconcile() ctrl.Result {
	r.t.Helper()
	result, err := r.reconciler.Reconcile(r.t.Context(), ctrl.Request{})
	r.Expect(err).NotTo(HaveOccurred())
	return result
}

// step requests a step and expects that it is executed.
func (r *rotation) step(step string) {
	r.t.Helper()
	r.ask(step)
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.secret().Annotations).NotTo(HaveKey(authority.RotationAnnotation))
	r.Expect(r.event()).To(HavePrefix("Normal CARotated "))
}

// event returns the next Event, or an empty string.
func (r *rotation) event() string {
	select {
	case e := <-r.events.Events:
		return e
	default:
		return ""
	}
}

// host creates an approved host that trusts that bundle.
func (r *rotation) host(name, bundle string, change ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	r.t.Helper()
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "sha256:" + strings.Repeat("a", 64), Generation: 1}
	for _, f := range change {
		f(h)
	}
	r.Expect(r.client.Create(r.t.Context(), h)).To(Succeed())
	r.acknowledge(h, bundle)
	return h
}

// acknowledge writes what the agent API writes when a host trusts a bundle.
func (r *rotation) acknowledge(h *infrav1.ElementalHost, bundle string) {
	r.t.Helper()
	h.Status.Agent = &infrav1.HostAgent{TrustDigest: protocol.TrustDigest(bundle)}
	r.Expect(r.client.Status().Update(r.t.Context(), h)).To(Succeed())
}

// connect connects as a host that trusts that bundle.
func (r *rotation) connect(bundle string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	conn, err := tls.Dial("tcp", r.address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	return conn.Close()
}

func refusedRoot(err error) bool {
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

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
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// rotation is an authority, its reconciler, called directly, and a TLS server
// with the authority's certificates.
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
	// fail, if set, is what the next write of a Secret ends with.
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

// restart is what a new manager begins with.
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

// change is what an administrator does to the Secret.
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

// step asks for a step and expects that it is taken.
func (r *rotation) step(step string) {
	r.t.Helper()
	r.ask(step)
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.secret().Annotations).NotTo(HaveKey(authority.RotationAnnotation))
	r.Expect(r.event()).To(HavePrefix("Normal CARotated "))
}

// event returns the next Event, blank if there is none.
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

// acknowledge is what the agent API writes when a host has taken a bundle over.
func (r *rotation) acknowledge(h *infrav1.ElementalHost, bundle string) {
	r.t.Helper()
	h.Status.Agent = &infrav1.HostAgent{TrustDigest: protocol.TrustDigest(bundle)}
	r.Expect(r.client.Status().Update(r.t.Context(), h)).To(Succeed())
}

// connect is what a host does that trusts that bundle.
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

func TestRotationInThreeSteps(t *testing.T) {
	r := newRotation(t)
	first := r.bundle()
	h := r.host("a", first)
	changes := 0
	r.authority.Subscribe(func() { changes++ })

	r.step(authority.StepPrepare)
	both := r.bundle()
	r.Expect(both).To(HavePrefix(first))
	r.Expect(strings.Count(both, "BEGIN CERTIFICATE")).To(Equal(2))
	r.Expect(changes).To(Equal(1))
	r.Expect(r.connect(first)).To(Succeed(), "a host that has heard nothing goes on until the switch")
	r.Expect(r.connect(both)).To(Succeed())

	r.acknowledge(h, both)
	r.step(authority.StepSwitch)
	r.Expect(r.bundle()).To(Equal(both), "hosts trust both until the end")
	r.Expect(changes).To(Equal(2))
	r.Expect(r.connect(both)).To(Succeed())
	r.Expect(refusedRoot(r.connect(first))).To(BeTrue())
	r.Expect(r.secret().Data).NotTo(Or(HaveKey(authority.NextCertKey), HaveKey(authority.NextKeyKey)))

	r.step(authority.StepFinish)
	last := r.bundle()
	r.Expect(first + last).To(Equal(both))
	r.Expect(changes).To(Equal(3))
	r.Expect(r.connect(both)).To(Succeed(), "a host that has not heard of the end yet")
	r.Expect(r.connect(last)).To(Succeed())
	r.Expect(r.writes).To(Equal(3), "one write a step")
	for range 3 {
		r.Expect(r.reconcile()).To(BeZero())
	}
	r.Expect([]int{r.writes, changes}).To(Equal([]int{3, 3}), "at rest nothing happens")
}

// Whatever step a manager dies in, another one takes it, or finds it taken.
func TestRotationIsCrashSafe(t *testing.T) {
	r := newRotation(t)
	for _, step := range []string{authority.StepPrepare, authority.StepSwitch, authority.StepFinish} {
		r.ask(step)
		before := r.secret()
		r.fail = errors.New("the power went")
		_, err := r.reconciler.Reconcile(t.Context(), ctrl.Request{})
		r.Expect(err).To(MatchError(ContainSubstring("the power went")))
		r.Expect(r.secret().Data).To(Equal(before.Data), step)
		r.Expect(r.connect(string(before.Data[authority.BundleKey]))).To(Succeed(), "nothing is used that is not durable")
		r.restart()
		r.reconcile()
		r.Expect(r.event()).To(HavePrefix("Normal CARotated "), step)
		done := r.secret()
		r.Expect(done.Annotations).NotTo(HaveKey(authority.RotationAnnotation))

		r.restart()
		r.reconcile()
		r.Expect(r.event()).To(BeEmpty())
		r.Expect(r.secret().ResourceVersion).To(Equal(done.ResourceVersion), "a step that was taken is not taken again")
	}
}

// Whoever is quicker wins, and the other one looks again.
func TestRotationLosesARace(t *testing.T) {
	r := newRotation(t)
	r.ask(authority.StepPrepare)
	before := r.bundle()
	r.fail = apierrors.NewConflict(corev1.Resource("secrets"), authority.SecretName, errors.New("changed"))
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.bundle()).To(Equal(before))
	r.Expect(r.event()).To(BeEmpty())
}

func TestSwitchWaitsForHosts(t *testing.T) {
	r := newRotation(t)
	first := r.bundle()
	r.step(authority.StepPrepare)
	both := r.bundle()
	r.host("told", both)
	slow := r.host("slow", first, func(h *infrav1.ElementalHost) {
		h.Spec.Identity.KeyFingerprint = "sha256:" + strings.Repeat("b", 64)
	})
	locked := r.host("locked", first, func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} })
	r.host("pending", "", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending })
	r.host("rejected", "", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected })
	r.host("declared", "", func(h *infrav1.ElementalHost) {
		h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{SerialNumber: "1"}}
	})

	r.ask(authority.StepSwitch)
	r.Expect(r.reconcile().RequeueAfter).To(Equal(5 * time.Second))
	told := r.event()
	r.Expect(told).To(HavePrefix("Warning CARotationWaiting 2 of 3 approved hosts have not acknowledged the next CA, 2 of them are not connected."))
	r.Expect(told).To(And(ContainSubstring("They are: "+r.namespace+"/locked, "+r.namespace+"/slow"), ContainSubstring("Force")))
	r.Expect(r.secret().Annotations).To(HaveKeyWithValue(authority.RotationAnnotation, authority.StepSwitch))
	r.Expect(r.connect(first)).To(Succeed())
	r.reconcile()
	r.Expect(r.event()).To(BeEmpty(), "it was told a moment ago")
	r.clock.Step(10 * time.Minute)
	r.reconcile()
	r.Expect(r.event()).To(HavePrefix("Warning CARotationWaiting "))

	metrics := prometheus.NewPedanticRegistry()
	r.Expect(r.reconciler.RegisterMetrics(metrics)).To(Succeed())
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_hosts_unacknowledged")).To(Equal(2.0))
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_roots")).To(Equal(2.0))
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_not_after_seconds")).To(BeNumerically(">", float64(r.clock.Now().Unix())))

	r.acknowledge(slow, both)
	r.acknowledge(locked, both)
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.event()).To(HavePrefix("Normal CARotated "))
}

func gauge(g *WithT, from prometheus.Gatherer, name string) float64 {
	families, err := from.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -2
}

// A host that was away is not waited for when an administrator says so. It
// refuses the server, whose root it has never seen, and does not come to harm.
func TestForcedSwitch(t *testing.T) {
	r := newRotation(t)
	first := r.bundle()
	r.host("away", first)
	r.step(authority.StepPrepare)
	r.ask(authority.StepSwitch)
	r.reconcile()
	r.Expect(r.event()).To(ContainSubstring("1 of 1 approved hosts have not acknowledged"), "the administrator knows what is at stake")
	r.step(authority.StepForce)
	r.Expect(refusedRoot(r.connect(first))).To(BeTrue())
	r.step(authority.StepFinish)
	r.Expect(refusedRoot(r.connect(first))).To(BeTrue())
	r.Expect(r.connect(r.bundle())).To(Succeed(), "with the new configuration it is back")
}

// A stolen key is worth nothing once the rotation is through: a host that has
// the new roots refuses who has it.
func TestThreat24_CAKeyTheft(t *testing.T) {
	r := newRotation(t)
	stolen := r.secret()
	thiefs := env.Namespace(t)
	stolen.ObjectMeta = metav1.ObjectMeta{Namespace: thiefs, Name: authority.SecretName}
	r.Expect(r.client.Create(t.Context(), stolen)).To(Succeed())
	thief := authority.New(r.client, r.client, thiefs, r.clock)
	accepts := func(bundle string) bool {
		leaf, err := thief.Leaf(t.Context(), []string{"127.0.0.1"})
		r.Expect(err).NotTo(HaveOccurred())
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(bundle))
		_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1", CurrentTime: r.clock.Now()})
		return err == nil
	}
	r.step(authority.StepPrepare)
	r.Expect(accepts(r.bundle())).To(BeTrue(), "the old CA is still in use")
	r.step(authority.StepSwitch)
	r.step(authority.StepFinish)
	r.Expect(accepts(r.bundle())).To(BeFalse())
	for key, value := range r.secret().Data {
		r.Expect(value).NotTo(Equal(stolen.Data[key]), key+" is the stolen one")
	}
}

func TestStepsThatMakeNoSense(t *testing.T) {
	r := newRotation(t)
	refused := func(step, why string) {
		t.Helper()
		before := r.secret().Data
		r.ask(step)
		r.Expect(r.reconcile()).To(BeZero())
		r.Expect(r.event()).To(And(HavePrefix("Warning CARotationRefused "), ContainSubstring(why)))
		r.Expect(r.secret().Annotations).NotTo(HaveKey(authority.RotationAnnotation))
		r.Expect(r.secret().Data).To(Equal(before))
	}
	refused(authority.StepSwitch, "Prepare comes first")
	refused(authority.StepForce, "Prepare comes first")
	refused("prepare", `"prepare" is none of Prepare, Switch, Force, Finish`)
	refused(strings.Repeat("x", 4096), "…")
	r.step(authority.StepFinish) // what is so already
	r.step(authority.StepPrepare)
	once := r.bundle()
	r.step(authority.StepPrepare)
	r.Expect(r.bundle()).To(Equal(once), "twice is the same as once")
	refused(authority.StepFinish, "Switch comes first")

	// Somebody took the next root out of the bundle by hand.
	whole := r.secret().Data[authority.BundleKey]
	r.change(func(s *corev1.Secret) { s.Data[authority.BundleKey] = s.Data[corev1.TLSCertKey] })
	refused(authority.StepForce, "Prepare comes first")
	r.step(authority.StepPrepare)
	r.Expect(r.secret().Data[authority.BundleKey]).To(Equal(whole))

	r.change(func(s *corev1.Secret) {
		s.Data[authority.NextCertKey], s.Data[authority.NextKeyKey] = s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	})
	refused(authority.StepPrepare, "the one in use")
}

func TestDeletedAuthorityIsPutBack(t *testing.T) {
	r := newRotation(t)
	r.step(authority.StepPrepare)
	before := r.secret()
	r.Expect(r.client.Delete(t.Context(), before)).To(Succeed())
	r.reconcile()
	r.Expect(r.secret().Data).To(Equal(before.Data), "the next CA as well")
	r.Expect(r.secret().UID).NotTo(Equal(before.UID))
	r.Expect(r.event()).To(HavePrefix("Warning CARestored "))
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.event()).To(BeEmpty())
}

// Before anything was read there is nothing to put back.
func TestNothingIsMadeBeforeItIsNeeded(t *testing.T) {
	g := NewWithT(t)
	c, namespace, clock := env.Client(t), env.Namespace(t), clocktesting.NewFakeClock(time.Now())
	reconciler := &authority.Reconciler{
		Authority: authority.New(c, c, namespace, clock), Hosts: c, Recorder: events.NewFakeRecorder(1), Clock: clock,
	}
	_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	err = c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: authority.SecretName}, &corev1.Secret{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
}

// What can't be read is left alone, and hosts are served with what is known.
func TestBrokenAuthorityIsNotUsed(t *testing.T) {
	r := newRotation(t)
	bundle := r.bundle()
	good := r.secret().Data
	r.change(func(s *corev1.Secret) { s.Data[corev1.TLSPrivateKeyKey] = []byte("x") })
	r.ask(authority.StepPrepare)
	broken := r.secret()
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.event()).To(HavePrefix("Warning CAUnreadable "))
	r.Expect(r.secret().ResourceVersion).To(Equal(broken.ResourceVersion))
	r.Expect(r.bundle()).To(Equal(bundle))
	r.Expect(r.connect(bundle)).To(Succeed())
	r.change(func(s *corev1.Secret) { s.Data = good })
	r.reconcile()
	r.Expect(r.event()).To(HavePrefix("Normal CARotated "), "and what was asked for is done")
}

// An administrator restores a backup over what a new manager has made.
func TestAuthorityIsReplacedByABackup(t *testing.T) {
	r, other := newRotation(t), newRotation(t)
	backup := other.secret().Data
	r.change(func(s *corev1.Secret) { s.Data = backup })
	r.reconcile()
	r.Expect(r.bundle()).To(Equal(other.bundle()))
	r.Expect(r.connect(other.bundle())).To(Succeed())
	r.Expect(r.event()).To(HavePrefix("Warning CAReplaced "))
}

package authority_test

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

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
	r.Expect(r.connect(first)).To(Succeed(), "a host without the new bundle can connect until the switch")
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
	r.Expect(r.connect(both)).To(Succeed(), "a host with both roots can still connect")
	r.Expect(r.connect(last)).To(Succeed())
	r.Expect(r.writes).To(Equal(3), "each step is one write")
	for range 3 {
		r.Expect(r.reconcile()).To(BeZero())
	}
	r.Expect([]int{r.writes, changes}).To(Equal([]int{3, 3}), "further reconciles change nothing")
}

// If a manager ends during a step, the next one executes it or finds it executed.
func TestRotationIsCrashSafe(t *testing.T) {
	r := newRotation(t)
	for _, step := range []string{authority.StepPrepare, authority.StepSwitch, authority.StepFinish} {
		r.ask(step)
		before := r.secret()
		r.fail = errors.New("the power went")
		_, err := r.reconciler.Reconcile(t.Context(), ctrl.Request{})
		r.Expect(err).To(MatchError(ContainSubstring("the power went")))
		r.Expect(r.secret().Data).To(Equal(before.Data), step)
		r.Expect(r.connect(string(before.Data[authority.BundleKey]))).To(Succeed(), "a CA that was not stored is not used")
		r.restart()
		r.reconcile()
		r.Expect(r.event()).To(HavePrefix("Normal CARotated "), step)
		done := r.secret()
		r.Expect(done.Annotations).NotTo(HaveKey(authority.RotationAnnotation))

		r.restart()
		r.reconcile()
		r.Expect(r.event()).To(BeEmpty())
		r.Expect(r.secret().ResourceVersion).To(Equal(done.ResourceVersion), "an executed step is not repeated")
	}
}

// Of two managers that execute a step, one wins, and the other one reconciles again.
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
	r.host("acknowledged", both)
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
	waiting := r.event()
	r.Expect(waiting).To(HavePrefix("Warning CARotationWaiting 2 of 3 approved hosts have not acknowledged the next CA, 2 of them are not connected."))
	r.Expect(waiting).To(And(ContainSubstring("They are: "+r.namespace+"/locked, "+r.namespace+"/slow"), ContainSubstring("Force")))
	r.Expect(r.secret().Annotations).To(HaveKeyWithValue(authority.RotationAnnotation, authority.StepSwitch))
	r.Expect(r.connect(first)).To(Succeed())
	r.reconcile()
	r.Expect(r.event()).To(BeEmpty(), "the Event is not repeated within its interval")
	r.clock.Step(10 * time.Minute)
	r.reconcile()
	r.Expect(r.event()).To(HavePrefix("Warning CARotationWaiting "))

	metrics := prometheus.NewPedanticRegistry()
	r.Expect(r.reconciler.RegisterMetrics(t.Context(), metrics)).To(Succeed())
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_hosts_unacknowledged")).To(Equal(2.0))
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_roots")).To(Equal(2.0))
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_not_after_seconds")).To(BeNumerically(">", float64(r.clock.Now().Unix())))

	r.acknowledge(slow, both)
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_hosts_unacknowledged")).To(Equal(2.0), "hosts are not counted each time")
	r.clock.Step(10 * time.Second)
	r.Expect(gauge(r.WithT, metrics, "elemental_agent_api_ca_hosts_unacknowledged")).To(Equal(1.0))
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

// A forced switch does not wait for disconnected hosts. Such a host refuses the server,
// whose root it does not know, and stays as it is.
func TestForcedSwitch(t *testing.T) {
	r := newRotation(t)
	first := r.bundle()
	r.host("away", first)
	r.step(authority.StepPrepare)
	r.ask(authority.StepSwitch)
	r.reconcile()
	r.Expect(r.event()).To(ContainSubstring("1 of 1 approved hosts have not acknowledged"), "the Event warns the administrator")
	r.step(authority.StepForce)
	r.Expect(refusedRoot(r.connect(first))).To(BeTrue())
	r.step(authority.StepFinish)
	r.Expect(refusedRoot(r.connect(first))).To(BeTrue())
	r.Expect(r.connect(r.bundle())).To(Succeed(), "a host with the new bundle can connect")
}

// A stolen CA key is worthless after the rotation: a host with the new roots refuses
// certificates that it has signed.
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

func TestRefusedSteps(t *testing.T) {
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
	refused("prepare", `it is none of Prepare, Switch, Force, Finish: "prepare"`)
	// The end of an Event may be cut off, so the hosts come last.
	refused(strings.Repeat("x", 4096), `it is none of Prepare, Switch, Force, Finish: "xxx`)
	r.step(authority.StepFinish) // executed already
	r.step(authority.StepPrepare)
	once := r.bundle()
	r.step(authority.StepPrepare)
	r.Expect(r.bundle()).To(Equal(once), "a repeated step changes nothing")
	refused(authority.StepFinish, "Switch comes first")

	// An administrator has removed the next root from the bundle.
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

package authority_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

func TestDeletedAuthorityIsRestored(t *testing.T) {
	r := newRotation(t)
	r.step(authority.StepPrepare)
	before := r.secret()
	r.Expect(r.client.Delete(t.Context(), before)).To(Succeed())
	r.reconcile()
	r.Expect(r.secret().Data).To(Equal(before.Data), "the Secret is restored with the next CA")
	r.Expect(r.secret().UID).NotTo(Equal(before.UID))
	r.Expect(r.event()).To(HavePrefix("Warning CARestored "))
	r.Expect(r.reconcile()).To(BeZero())
	r.Expect(r.event()).To(BeEmpty())
}

// Before the first use there is nothing to restore.
func TestNothingIsCreatedBeforeTheFirstUse(t *testing.T) {
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

// An invalid Secret is not changed, and hosts are served with the previous material.
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
	r.Expect(r.event()).To(HavePrefix("Normal CARotated "), "the requested step is executed")
}

// An administrator restores a backup over the Secret of a new manager.
func TestAuthorityIsReplacedByABackup(t *testing.T) {
	r, other := newRotation(t), newRotation(t)
	backup := other.secret().Data
	r.change(func(s *corev1.Secret) { s.Data = backup })
	r.reconcile()
	r.Expect(r.bundle()).To(Equal(other.bundle()))
	r.Expect(r.connect(other.bundle())).To(Succeed())
	r.Expect(r.event()).To(HavePrefix("Warning CAReplaced "))
}

// The CA in tls.crt may be an intermediate CA of a root whose key is elsewhere. Hosts know
// only the root.
func TestIntermediate(t *testing.T) {
	r := newRotation(t)
	keep := newCA(r.WithT, nil)
	one, two := newCA(r.WithT, keep), newCA(r.WithT, keep)
	r.change(func(s *corev1.Secret) {
		s.Data = map[string][]byte{
			corev1.TLSCertKey: one.cert, corev1.TLSPrivateKeyKey: one.key, authority.BundleKey: keep.cert,
		}
	})
	r.reconcile()
	r.Expect(r.event()).To(HavePrefix("Warning CAReplaced "))
	r.Expect(r.connect(string(keep.cert))).To(Succeed())

	// Hosts need not trust another intermediate CA of the same root.
	r.change(func(s *corev1.Secret) {
		s.Data[authority.NextCertKey], s.Data[authority.NextKeyKey] = two.cert, two.key
	})
	for _, step := range []string{authority.StepPrepare, authority.StepSwitch, authority.StepFinish} {
		r.step(step)
		r.Expect(r.bundle()).To(Equal(string(keep.cert)), step)
		r.Expect(r.connect(string(keep.cert))).To(Succeed(), step)
	}
	r.Expect(r.secret().Data[corev1.TLSCertKey]).To(Equal(two.cert))

	// An intermediate CA of an unknown root can't be used.
	stranger := newCA(r.WithT, newCA(r.WithT, nil))
	r.change(func(s *corev1.Secret) {
		s.Data[authority.NextCertKey], s.Data[authority.NextKeyKey] = stranger.cert, stranger.key
	})
	r.ask(authority.StepPrepare)
	r.reconcile()
	r.Expect(r.event()).To(ContainSubstring("next.crt is not a root"))
}

type ca struct {
	cert, key []byte
	parsed    *x509.Certificate
	private   *ecdsa.PrivateKey
}

// newCA returns a CA that another one has signed, or a root.
func newCA(g *WithT, parent *ca) *ca {
	key, err := identity.NewKey()
	g.Expect(err).NotTo(HaveOccurred())
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "CA " + serial.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if parent == nil {
		parent = &ca{parsed: template, private: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.parsed, &key.PublicKey, parent.private)
	g.Expect(err).NotTo(HaveOccurred())
	made := &ca{private: key, cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	made.parsed, err = x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	made.key, err = identity.EncodeKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	return made
}

// A manager with no more permissions than its Role reconciles the Secret.
func TestManagerReconcilesTheSecret(t *testing.T) {
	g := NewWithT(t)
	admin, namespace := env.Client(t), env.Namespace(t)
	g.Expect(admin.Create(t.Context(), managerRole(g, namespace))).To(Succeed())
	g.Expect(admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "manager-role"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "manager-of-" + namespace}},
	})).To(Succeed())
	skip := true
	mgr, err := ctrl.NewManager(env.AddUser(t, "manager-of-"+namespace), ctrl.Options{
		Scheme: env.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
	})
	g.Expect(err).NotTo(HaveOccurred())
	recorder := events.NewFakeRecorder(100)
	a := authority.New(mgr.GetAPIReader(), mgr.GetClient(), namespace, clocktesting.NewFakeClock(time.Now()))
	reconciler := &authority.Reconciler{
		Authority: a, Hosts: client.NewNamespacedClient(admin, namespace), Recorder: recorder, Clock: clocktesting.NewFakeClock(time.Now()),
	}
	g.Expect(reconciler.SetupWithManager(mgr)).To(Succeed())
	first, err := a.Bundle(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-done).To(Succeed())
	})

	key := client.ObjectKey{Namespace: namespace, Name: authority.SecretName}
	for _, step := range []string{authority.StepPrepare, authority.StepSwitch, authority.StepFinish} {
		secret := &corev1.Secret{}
		g.Expect(admin.Get(t.Context(), key, secret)).To(Succeed())
		secret.Annotations = map[string]string{authority.RotationAnnotation: step}
		g.Expect(admin.Update(t.Context(), secret)).To(Succeed())
		g.Eventually(recorder.Events, "1m").Should(Receive(HavePrefix("Normal CARotated ")))
	}
	last, err := a.Bundle(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(last).NotTo(Equal(first))
	g.Expect(admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: authority.SecretName}})).To(Succeed())
	g.Eventually(recorder.Events, "1m").Should(Receive(HavePrefix("Warning CARestored ")))
	restored := &corev1.Secret{}
	g.Expect(admin.Get(t.Context(), key, restored)).To(Succeed())
	g.Expect(string(restored.Data[authority.BundleKey])).To(Equal(last))
}

// managerRole reads the manager's Role in its own namespace.
func managerRole(g *WithT, namespace string) *rbacv1.Role {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "rbac", "role.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	role := &rbacv1.Role{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("kind: Role\n")) {
			g.Expect(yaml.Unmarshal(document, role)).To(Succeed())
		}
	}
	g.Expect(role.Rules).NotTo(BeEmpty())
	role.Namespace = namespace
	return role
}

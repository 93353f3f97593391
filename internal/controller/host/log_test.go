package host_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// withLog is a host whose log expires at a time.
func (f *fixture) withLog(name string, expires time.Time) *infrav1.ElementalHost {
	return f.Host(name, func(h *infrav1.ElementalHost) {
		h.Status.Log = &infrav1.HostLog{
			ID: "1", Operation: infrav1.OperationBootstrap, OperationID: "c", SecretName: name + "-log", ExpiresAt: metav1.NewTime(expires),
		}
	})
}

// logSecret creates the Secret with the log of a host.
func (f *fixture) logSecret(h *infrav1.ElementalHost, expires time.Time, change ...func(*corev1.Secret)) *corev1.Secret {
	f.T.Helper()
	secret := &corev1.Secret{ObjectMeta: f.Meta(infrav1.LogSecretName(h)), Type: infrav1.HostLogSecretType}
	secret.Annotations = map[string]string{infrav1.LogExpiresAnnotation: expires.UTC().Format(time.RFC3339)}
	secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(h, infrav1.GroupVersion.WithKind("ElementalHost"))}
	for _, f := range change {
		f(secret)
	}
	f.Expect(f.Admin.Create(f.Ctx, secret)).To(Succeed())
	return secret
}

func (f *fixture) exists(secret *corev1.Secret) bool {
	f.T.Helper()
	err := f.Admin.Get(f.Ctx, client.ObjectKeyFromObject(secret), secret)
	if !apierrors.IsNotFound(err) {
		f.Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}

// A log is there for its time, whoever leads meanwhile, and then nothing of it is. A paused host
// is no exception.
func TestThreat87_LogsExpire(t *testing.T) {
	for name, pause := range map[string]map[string]string{"": nil, "paused": {clusterv1.PausedAnnotation: ""}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			now := f.Clock.Now().Truncate(time.Second)
			h := f.withLog("h1", now.Add(time.Hour))
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Annotations = pause })
			secret := f.logSecret(h, now.Add(time.Hour))
			result, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h)})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(result.RequeueAfter).To(BeNumerically("~", time.Hour, 2*time.Second), "it comes back when the log has expired")
			f.Expect(f.exists(secret)).To(BeTrue())

			f.Clock.SetTime(now.Add(time.Hour))
			f.reconcile(h)
			f.Expect(f.exists(secret)).To(BeFalse())
			f.Expect(h.Status.Log).To(BeNil())
			f.reconcile(h)
		})
	}
}

// A Secret that is not the host's log stays, and so does a log that is newer than the status in
// the cache.
func TestOtherSecretsStay(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"another type":  func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"without owner": func(s *corev1.Secret) { s.OwnerReferences = nil },
		"another host":  func(s *corev1.Secret) { s.OwnerReferences[0].UID = "other" },
		"a newer log's": func(s *corev1.Secret) { s.Annotations[infrav1.LogExpiresAnnotation] = "2999-01-01T00:00:00Z" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			h := f.withLog("h1", f.Clock.Now().Add(-time.Minute))
			secret := f.logSecret(h, f.Clock.Now().Add(-time.Minute), change)
			f.reconcile(h)
			f.Expect(f.exists(secret)).To(BeTrue())
			f.Expect(h.Status.Log).To(BeNil())
		})
	}
}

// A host that was away is not asked for a log that nobody waits for.
func TestThreat87_RequestsEnd(t *testing.T) {
	f := newFixture(t)
	now := f.Clock.Now().Truncate(time.Second)
	h := f.Host("h1", func(h *infrav1.ElementalHost) {
		h.Spec.LogRequest = &infrav1.HostLogRequest{ID: "1", Operation: infrav1.OperationReset, Until: metav1.NewTime(now.Add(time.Minute))}
	})
	result, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(result.RequeueAfter).To(BeNumerically("~", time.Minute, 2*time.Second))
	f.Refresh(h)
	f.Expect(h.Spec.LogRequest).NotTo(BeNil())

	f.Clock.SetTime(now.Add(time.Minute))
	f.reconcile(h)
	f.Expect(h.Spec.LogRequest).To(BeNil())
	f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.LogRequestEndedReason + " The host has not sent the log of its last Reset in time")))
}

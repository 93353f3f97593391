package registration_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

func TestRegistrationIsPublished(t *testing.T) {
	f := newFixture(t)
	result := f.reconcile()
	f.Expect(f.writes).To(Equal(2), "the token Secret and one status")
	f.Expect(result.RequeueAfter).To(BeNumerically("~", 24*time.Hour, time.Minute))

	r := f.get()
	f.Expect(r.Status.Endpoint).To(Equal(infrav1.PublishedEndpoint{URL: "https://agents.example.com", CABundle: bundle}))
	f.Expect(r.Status.TokenSecretRef.Name).To(Equal("edge-token"))
	f.Expect(r.Status.TokenExpiresAt.Time).To(BeTemporally("~", f.clock.Now().Add(24*time.Hour), 2*time.Second))
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	f.expectCondition("EndpointReady", metav1.ConditionTrue, "Published")
	f.expectCondition("TokenValid", metav1.ConditionTrue, "Usable")
	f.expectCondition("Paused", metav1.ConditionFalse, "NotPaused")

	secret := f.secret()
	f.Expect(secret.Type).To(BeEquivalentTo(infrav1.TokenSecretType))
	f.Expect(secret.Labels).To(HaveKeyWithValue(infrav1.RegistrationLabel, "edge"))
	f.Expect(metav1.IsControlledBy(secret, r)).To(BeTrue())
	token, err := enrolment.ReadToken(secret)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(token.MaxUses).To(Equal(1))
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(config.Servers).To(Equal([]string{"https://agents.example.com"}))
	f.Expect(config.TrustBundle).To(Equal(bundle))
	f.Expect(token.Matches(config.Token)).To(BeTrue())

	for range 3 {
		f.reconcile()
	}
	f.Expect(f.writes).To(Equal(2), "an unchanged registration must not be written")
}

func TestRegistrationWithoutURL(t *testing.T) {
	f := newFixture(t)
	f.reconciler.URL = ""
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionFalse, "EndpointUnknown")
	f.expectCondition("EndpointReady", metav1.ConditionFalse, "EndpointUnknown")
	f.expectCondition("TokenValid", metav1.ConditionFalse, "EndpointUnknown")
	f.Expect(f.get().Status.TokenSecretRef).To(BeNil())

	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Endpoint.URL = "https://10.1.2.3:8443/" })
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	f.Expect(f.get().Status.Endpoint.URL).To(Equal("https://10.1.2.3:8443"))

	// The configuration follows the URL and keeps its token.
	before, err := enrolment.DecodeAgentConfig(f.secret().Data[enrolment.ConfigKey])
	f.Expect(err).NotTo(HaveOccurred())
	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Endpoint.URL = "https://10.1.2.4:8443" })
	f.reconciler.Authority = roots(bundle + bundle)
	f.reconcile()
	after, err := enrolment.DecodeAgentConfig(f.secret().Data[enrolment.ConfigKey])
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(after).To(Equal(enrolment.AgentConfig{Servers: []string{"https://10.1.2.4:8443"}, TrustBundle: bundle + bundle, Token: before.Token}))
}

// The plain token of an expired one is gone, and the registration makes no other.
func TestThreat01_ExpiredTokenIsAHash(t *testing.T) {
	f := newFixture(t, func(r *infrav1.ElementalRegistration) { r.Spec.Token = infrav1.TokenPolicy{TTLSeconds: 60, MaxUses: 5} })
	result := f.reconcile()
	f.Expect(result.RequeueAfter).To(BeNumerically("~", time.Minute, 2*time.Second))
	f.clock.Step(result.RequeueAfter)
	hash := f.secret().Data[enrolment.HashKey]
	for range 2 {
		f.Expect(f.reconcile().RequeueAfter).To(BeZero())
		f.expectCondition("TokenValid", metav1.ConditionFalse, "Expired")
		f.expectCondition("Ready", metav1.ConditionFalse, "Expired")
		f.Expect(f.secret().Data).NotTo(HaveKey(enrolment.ConfigKey))
		f.Expect(f.secret().Data[enrolment.HashKey]).To(Equal(hash))
	}

	f.Expect(f.client.Delete(t.Context(), f.secret())).To(Succeed())
	f.reconcile()
	f.expectCondition("TokenValid", metav1.ConditionTrue, "Usable")
	f.Expect(f.secret().Data[enrolment.HashKey]).NotTo(Equal(hash))
}

func TestTokenIsUsedUp(t *testing.T) {
	f := newFixture(t)
	f.reconcile()
	secret := f.secret()
	secret.Data[enrolment.UsedKey] = []byte("1")
	f.Expect(f.client.Update(t.Context(), secret)).To(Succeed())
	f.reconcile()
	f.expectCondition("TokenValid", metav1.ConditionFalse, "UsedUp")
	f.Expect(f.secret().Data).NotTo(HaveKey(enrolment.ConfigKey))

	// An administrator's own token makes the registration usable again.
	mine := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "mine", Labels: map[string]string{infrav1.RegistrationLabel: "edge"}},
		Type:       infrav1.TokenSecretType,
		StringData: map[string]string{
			enrolment.HashKey:      identity.HashToken("x"),
			enrolment.ExpiresAtKey: f.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			enrolment.ConfigKey:    "token: x\nextra: kept\n",
		},
	}
	f.Expect(f.client.Create(t.Context(), mine)).To(Succeed())
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	f.Expect(f.get().Status.TokenSecretRef.Name).To(Equal("mine"))
	f.Expect(f.client.Get(t.Context(), client.ObjectKeyFromObject(mine), mine)).To(Succeed())
	f.Expect(mine.OwnerReferences).To(HaveLen(1), "the Secret must be moved with the registration")
	f.Expect(mine.OwnerReferences[0].Controller).To(BeNil())
	f.Expect(string(mine.Data[enrolment.ConfigKey])).To(Equal("token: x\nextra: kept\n"))
	f.Expect(string(mine.Data[enrolment.IssuedAtKey])).To(Equal(mine.CreationTimestamp.UTC().Format(time.RFC3339)),
		"a move must not make a long-lived token short-lived")
	writes := f.writes
	f.reconcile()
	f.Expect(f.writes).To(Equal(writes))
}

// A backup of manifests has no owner references. The token from the time of the backup stays the
// registration's own.
func TestTokenIsRestoredWithoutItsOwner(t *testing.T) {
	f := newFixture(t)
	f.reconcile()
	secret := f.secret()
	secret.OwnerReferences = nil
	f.Expect(f.client.Update(t.Context(), secret)).To(Succeed())
	f.reconciler.URL = "https://other.example.com"
	f.reconcile()
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
	restored := f.secret()
	f.Expect(metav1.IsControlledBy(restored, f.get())).To(BeTrue())
	f.Expect(restored.Data[enrolment.HashKey]).To(Equal(secret.Data[enrolment.HashKey]))
	f.Expect(string(restored.Data[enrolment.ConfigKey])).To(ContainSubstring("https://other.example.com"))
}

func TestPausedRegistration(t *testing.T) {
	f := newFixture(t, func(r *infrav1.ElementalRegistration) {
		r.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	})
	f.reconcile()
	f.expectCondition("Paused", metav1.ConditionTrue, "Paused")
	err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: "edge-token"}, &corev1.Secret{})
	f.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	f.update(func(r *infrav1.ElementalRegistration) { r.Annotations = nil })
	f.reconcile()
	f.expectCondition("Paused", metav1.ConditionFalse, "NotPaused")
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")
}

func TestWatchFilterAndDeletion(t *testing.T) {
	f := newFixture(t)
	f.reconciler.WatchFilter = "mine"
	f.reconcile()
	f.Expect(f.writes).To(BeZero())
	f.Expect(f.client.Delete(t.Context(), f.get())).To(Succeed())
	f.reconcile()
}

// The condition names the pinned binaries that can't be downloaded. Hosts can enrol all the
// same.
func TestPinnedAgents(t *testing.T) {
	amd64, arm64 := strings.Repeat("a", 64), strings.Repeat("b", 64)
	f := newFixture(t, func(r *infrav1.ElementalRegistration) {
		r.Spec.Agent = &infrav1.AgentRelease{Version: "v0.2.0", Binaries: []infrav1.AgentBinary{
			{Architecture: "amd64", SHA256: amd64}, {Architecture: "arm64", SHA256: arm64},
		}}
	})
	f.reconciler.Agents = served{amd64: true}
	f.reconcile()
	f.expectCondition("AgentBinariesReady", metav1.ConditionFalse, "BinariesMissing")
	message := meta.FindStatusCondition(f.get().Status.Conditions, "AgentBinariesReady").Message
	f.Expect(message).To(And(HaveSuffix("arm64 ("+arm64+")"), Not(ContainSubstring("amd64"))))
	f.expectCondition("Ready", metav1.ConditionTrue, "Published")

	f.reconciler.Agents = served{amd64: true, arm64: true}
	f.reconcile()
	f.expectCondition("AgentBinariesReady", metav1.ConditionTrue, "BinariesServed")
	writes := f.writes
	f.reconcile()
	f.Expect(f.writes).To(Equal(writes))

	f.update(func(r *infrav1.ElementalRegistration) { r.Spec.Agent = nil })
	f.reconcile()
	f.Expect(meta.FindStatusCondition(f.get().Status.Conditions, "AgentBinariesReady")).To(BeNil())
}

package enrolment_test

import (
	"maps"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

func TestTokenSurvivesItsSecret(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	plain := identity.NewToken()
	want := enrolment.Token{Hash: identity.HashToken(plain), ExpiresAt: now.Add(time.Hour), IssuedAt: now, MaxUses: 3, Used: 1}
	secret := &corev1.Secret{Type: infrav1.TokenSecretType}
	want.WriteTo(secret)
	got, err := enrolment.ReadToken(secret)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(want))
	g.Expect(got.Matches(plain)).To(BeTrue())
	g.Expect(got.Matches(plain + "x")).To(BeFalse())

	g.Expect(got.State(now)).To(Equal(enrolment.Usable))
	g.Expect(got.State(now.Add(time.Hour))).To(Equal(enrolment.Expired))
	got.Used = 3
	g.Expect(got.State(now)).To(Equal(enrolment.UsedUp))

	secret.CreationTimestamp = metav1.NewTime(now)
	g.Expect(want.LongLived(secret)).To(BeFalse())
	want.ExpiresAt = now.Add(8 * 24 * time.Hour)
	g.Expect(want.LongLived(secret)).To(BeTrue())
}

// A token does not become short-lived when its Secret is created again, as a move and a
// restore do. A time of issue after the creation is not believed.
func TestThreat06_LongLivedTokenIsMoved(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	secret := func(created time.Time) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
	}
	token := enrolment.Token{ExpiresAt: now.Add(30 * 24 * time.Hour)}
	g.Expect(token.LongLived(secret(now))).To(BeTrue())
	token.IssuedAt = now
	g.Expect(token.LongLived(secret(now.Add(29*24*time.Hour)))).To(BeTrue(), "moved a day before it expires")
	token.IssuedAt = now.Add(29 * 24 * time.Hour)
	g.Expect(token.LongLived(secret(now))).To(BeTrue(), "the Secret is older")
	token.ExpiresAt, token.IssuedAt = now.Add(time.Hour), now
	g.Expect(token.LongLived(secret(now))).To(BeFalse())
}

func TestMalformedTokenSecrets(t *testing.T) {
	hash := identity.HashToken("x")
	good := map[string]string{enrolment.HashKey: hash, enrolment.ExpiresAtKey: "2030-01-02T03:04:05Z"}
	secret := func(change func(map[string]string)) *corev1.Secret {
		data := map[string][]byte{}
		text := map[string]string{}
		maps.Copy(text, good)
		change(text)
		for k, v := range text {
			data[k] = []byte(v)
		}
		return &corev1.Secret{Type: infrav1.TokenSecretType, Data: data}
	}
	g := NewWithT(t)
	token, err := enrolment.ReadToken(secret(func(map[string]string) {}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(token.MaxUses).To(Equal(1))
	for _, change := range []func(map[string]string){
		func(m map[string]string) { delete(m, enrolment.HashKey) },
		func(m map[string]string) { delete(m, enrolment.ExpiresAtKey) },
		func(m map[string]string) { m[enrolment.ExpiresAtKey] = "tomorrow" },
		func(m map[string]string) { m[enrolment.IssuedAtKey] = "yesterday" },
		func(m map[string]string) { m[enrolment.MaxUsesKey] = "many" },
		func(m map[string]string) { m[enrolment.UsedKey] = "-1" },
	} {
		_, err := enrolment.ReadToken(secret(change))
		g.Expect(err).To(HaveOccurred())
	}
	_, err = enrolment.ReadToken(&corev1.Secret{Type: corev1.SecretTypeOpaque, Data: secret(func(map[string]string) {}).Data})
	g.Expect(err).To(HaveOccurred())
}

func TestURL(t *testing.T) {
	g := NewWithT(t)
	registration := &infrav1.ElementalRegistration{}
	g.Expect(enrolment.ServerURL(registration, "")).To(BeEmpty())
	g.Expect(enrolment.ServerURL(nil, "https://a/")).To(Equal("https://a"))
	g.Expect(enrolment.ServerURL(registration, "https://a")).To(Equal("https://a"))
	registration.Spec.Endpoint.URL = "https://b:8443/"
	g.Expect(enrolment.ServerURL(registration, "https://a")).To(Equal("https://b:8443"))
	g.Expect(enrolment.ServerHost("https://B.example:8443")).To(Equal("b.example"))
	g.Expect(enrolment.ServerHost("https://[fd00::1]:8443")).To(Equal("fd00::1"))
	g.Expect(enrolment.ServerHost("::")).To(BeEmpty())
}

func TestAgentConfig(t *testing.T) {
	g := NewWithT(t)
	want := enrolment.AgentConfig{Servers: []string{"https://a"}, TrustBundle: "-----BEGIN\nx\n", Token: "t"}
	text, err := want.Encode()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(ContainSubstring("trustBundle: |"))
	got, err := enrolment.DecodeAgentConfig(text)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(want))
}

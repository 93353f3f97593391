package command_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

const plainToken = "plain-token"

// registration creates a registration whose token has been used that often.
func registration(f *fixture, used int) *corev1.Secret {
	r := &infrav1.ElementalRegistration{ObjectMeta: f.Meta("berlin")}
	r.Status.Endpoint.URL = "https://agents.example.com"
	f.Create(r)
	secret := &corev1.Secret{ObjectMeta: f.Meta("berlin-token"), Type: infrav1.TokenSecretType}
	secret.Labels = map[string]string{infrav1.RegistrationLabel: "berlin"}
	secret.Data = map[string][]byte{enrolment.ConfigKey: []byte("token: " + plainToken + "\n")}
	enrolment.Token{Hash: identity.HashToken(plainToken), ExpiresAt: now.Add(24 * time.Hour), MaxUses: 5, Used: used}.WriteTo(secret)
	f.Expect(controllerutil.SetControllerReference(r, secret, f.Admin.Scheme())).To(Succeed())
	f.Expect(f.Admin.Create(f.Ctx, secret)).To(Succeed())
	return secret
}

func TestToken(t *testing.T) {
	f := newFixture(t)
	secret := registration(f, 1)
	text, err := f.run("token", "berlin")
	f.Expect(err).NotTo(HaveOccurred())
	f.expectGolden("token", text)
	f.Expect(text).NotTo(ContainSubstring(plainToken), "nobody asked for the token")

	text, err = f.run("token", "berlin", "--show")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(text).To(Equal("token: " + plainToken + "\n"))

	_, err = f.run("token", "berlin", "--rotate")
	f.Expect(err).To(MatchError(ContainSubstring("was not confirmed")))
	f.Expect(f.Exists(secret)).To(BeTrue())

	f.input = "berlin-token\n"
	text, err = f.run("token", "berlin", "--rotate")
	f.Expect(err).NotTo(HaveOccurred())
	f.expectGolden("token-rotate", text)
	f.Expect(f.Exists(secret)).To(BeFalse())

	_, err = f.run("token", "berlin", "--rotate")
	f.Expect(err).To(MatchError(ContainSubstring("it has no token that the manager made")))
}

func TestUnusableToken(t *testing.T) {
	f := newFixture(t)
	registration(f, 5)
	text, err := f.run("token", "berlin")
	f.Expect(err).NotTo(HaveOccurred())
	f.expectGolden("token-used-up", text)
	text, err = f.run("token", "berlin", "--show")
	f.Expect(err).To(MatchError(ContainSubstring("it has no token that a host can enrol with")))
	f.Expect(text).To(BeEmpty())

	r := &infrav1.ElementalRegistration{ObjectMeta: f.Meta("berlin")}
	f.Refresh(r)
	r.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
	f.Expect(f.Admin.Update(f.Ctx, r)).To(Succeed())
	_, err = f.run("token", "berlin", "--rotate", "--yes")
	f.Expect(err).To(MatchError(ContainSubstring("it is paused")))
	f.Expect(f.Exists(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "berlin-token"}})).To(BeTrue())
}

package command_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// registered creates a registration berlin that is published, with a token.
func (f *fixture) registered() (*infrav1.ElementalRegistration, *corev1.Secret) {
	f.T.Helper()
	r := &infrav1.ElementalRegistration{ObjectMeta: f.Meta("berlin")}
	f.Create(r)
	secret := &corev1.Secret{ObjectMeta: f.Meta("berlin-token"), Type: infrav1.TokenSecretType}
	secret.Labels = map[string]string{infrav1.RegistrationLabel: "berlin"}
	secret.Data = map[string][]byte{enrolment.ConfigKey: []byte("servers: [https://agents.example.com]\ntoken: some-token\ntrustBundle: PEM\n")}
	enrolment.Token{Hash: identity.HashToken("some-token"), ExpiresAt: now.Add(time.Hour), MaxUses: 20, Used: 3}.WriteTo(secret)
	f.Create(secret)
	controllertest.ChangeStatus(f.Fixture, r, func(r *infrav1.ElementalRegistration) {
		r.Status.Endpoint = infrav1.PublishedEndpoint{URL: "https://agents.example.com", CABundle: "PEM"}
		r.Status.TokenSecretRef = &infrav1.LocalReference{Name: "berlin-token"}
	})
	return r, secret
}

func TestEnrol(t *testing.T) {
	f := newFixture(t)
	f.registered()
	text, err := f.run("enrol", "berlin", "--for", "shell", "--offline", "--https-proxy", "http://proxy:3128")
	f.Expect(err).NotTo(HaveOccurred())
	f.expectGolden("enrol", text)
}

// What is missing is named, with what provides it.
func TestEnrolSaysWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fixture, *infrav1.ElementalRegistration, *corev1.Secret)
		want   string
	}{
		"no URL": {func(f *fixture, r *infrav1.ElementalRegistration, _ *corev1.Secret) {
			controllertest.ChangeStatus(f.Fixture, r, func(r *infrav1.ElementalRegistration) {
				r.Status.Endpoint = infrav1.PublishedEndpoint{}
				r.Status.Conditions = []metav1.Condition{condition(infrav1.EndpointReadyCondition, infrav1.EndpointUnknownReason, "")}
			})
		}, "has no server URL for hosts yet (EndpointUnknown): set its spec.endpoint.url"},
		"no token": {func(f *fixture, r *infrav1.ElementalRegistration, _ *corev1.Secret) {
			controllertest.ChangeStatus(f.Fixture, r, func(r *infrav1.ElementalRegistration) {
				r.Status.TokenSecretRef = nil
				r.Status.Conditions = []metav1.Condition{condition(infrav1.TokenValidCondition, infrav1.TokenExpiredReason, "All tokens have expired")}
			})
		}, "has no usable token (Expired: All tokens have expired): delete its Secret"},
		"expired": {func(f *fixture, _ *infrav1.ElementalRegistration, _ *corev1.Secret) {
			f.Clock.Step(2 * time.Hour)
		}, "the token in the Secret berlin-token is not usable (Expired; 3 of 20 uses"},
		"used up": {func(f *fixture, _ *infrav1.ElementalRegistration, s *corev1.Secret) {
			s.Data[enrolment.UsedKey] = []byte("20")
			f.Expect(f.Admin.Update(f.Ctx, s)).To(Succeed())
		}, "is not usable (UsedUp; 20 of 20 uses"},
		"no configuration": {func(f *fixture, _ *infrav1.ElementalRegistration, s *corev1.Secret) {
			delete(s.Data, enrolment.ConfigKey)
			f.Expect(f.Admin.Update(f.Ctx, s)).To(Succeed())
		}, "has no complete agent configuration"},
		"no Secret": {func(f *fixture, _ *infrav1.ElementalRegistration, s *corev1.Secret) {
			f.Expect(f.Admin.Delete(f.Ctx, s)).To(Succeed())
		}, "reading the Secret with the token"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			r, s := f.registered()
			test.change(f, r, s)
			text, err := f.run("enrol", "berlin", "--for", "shell", "--offline")
			f.Expect(err).To(MatchError(ContainSubstring(test.want)))
			f.Expect(text).To(BeEmpty())
		})
	}
	f := newFixture(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"enrol", "berlin"}, "--for is missing; it must be one of shell, cloud-init, ignition, combustion"},
		{[]string{"enrol", "berlin", "--for", "shell"}, "there is no ElementalRegistration berlin in namespace "},
		{[]string{"enrol"}, "accepts 1 arg(s), received 0"},
	} {
		_, err := f.run(test.args...)
		f.Expect(err).To(MatchError(ContainSubstring(test.want)), "%v", test.args)
	}
}

package webhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// newCertificate returns a certificate in PEM and its key.
func newCertificate(t *testing.T, isCA bool) (certificate, key string) {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "next"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	secret, err := x509.MarshalECPrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

// What hosts could not use is refused when a person writes it, and not when they need it.
func TestThreat91_SuccessorHasCACertificates(t *testing.T) {
	serve(t, io.Discard)
	g := NewWithT(t)
	c, namespace := env.Client(t), env.Namespace(t)
	ca, key := newCertificate(t, true)
	leaf, _ := newCertificate(t, false)
	with := func(bundle string, urls ...string) *infrav1.ElementalRegistration {
		r := newRegistration(namespace, "")
		r.Spec.Successor = &infrav1.RegistrationSuccessor{URLs: urls, TrustBundle: bundle}
		return r
	}
	const url = "https://next.example.com:8443"
	for name, tc := range map[string]struct {
		registration *infrav1.ElementalRegistration
		message      string
	}{
		"no CA":            {with(leaf, url), "certificate 1, CN=next, is not that of a CA"},
		"a private key":    {with(ca+key, url), `it must have certificates only, not "EC PRIVATE KEY"`},
		"no PEM":           {with("CERTIFICATE", url), "it must have certificates in PEM and nothing else"},
		"something else":   {with(ca+"and a comment", url), "it must have certificates in PEM and nothing else"},
		"no certificate":   {with("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", url), "parsing certificate 1"},
		"no bundle":        {with("", url), "spec.successor.trustBundle: Required value"},
		"no URL":           {with(ca), "spec.successor.urls: Required value"},
		"http":             {with(ca, "http://next.example.com"), "each URL must be https://host[:port] without a path"},
		"a path":           {with(ca, url+"/v1"), "each URL must be https://host[:port] without a path"},
		"too many URLs":    {with(ca, url, url+"1", url+"2", url+"3", url+"4"), "spec.successor.urls: Too many: 5"},
		"a bundle too big": {with(strings.Repeat(ca, 200), url), "spec.successor.trustBundle: Too long"},
	} {
		err := c.Create(t.Context(), tc.registration)
		g.Expect(err).To(MatchError(ContainSubstring(tc.message)), name)
		g.Expect(err.Error()).NotTo(ContainSubstring("PRIVATE KEY-----"), name)
	}
	registration := with(ca+ca, url, "https://[2001:db8::1]:8443/")
	g.Expect(c.Create(t.Context(), registration)).To(Succeed())
	registration.Spec.Successor.TrustBundle = leaf
	g.Expect(c.Update(t.Context(), registration)).To(MatchError(ContainSubstring("is not that of a CA")))
}

// Registrations decide what hosts run and whom they obey, and grants which namespace has them.
func TestThreat56_WhoDecidesOnRegistrationsAndGrantsIsRecorded(t *testing.T) {
	g := NewWithT(t)
	out := &logOutput{}
	serve(t, out)
	alice, bob := clientOf(t, "alice"), clientOf(t, "bob")
	namespace, other := env.Namespace(t), env.Namespace(t)
	ca, _ := newCertificate(t, true)
	registration := newRegistration(namespace, "")
	registration.Spec.Agent = &infrav1.AgentRelease{Version: "v1.2.3", Binaries: []infrav1.AgentBinary{{Architecture: "amd64", SHA256: strings.Repeat("a", 64)}}}
	g.Expect(alice.Create(t.Context(), registration)).To(Succeed())
	recorded := func() []string { return out.lines("ElementalRegistration", registration) }
	g.Expect(recorded()).To(HaveExactElements(ContainSubstring(`change="AgentChanged" user="alice"`)))

	registration.Spec.Successor = &infrav1.RegistrationSuccessor{URLs: []string{"https://next.example.com"}, TrustBundle: ca}
	g.Expect(bob.Update(t.Context(), registration.DeepCopy(), client.DryRunAll)).To(Succeed())
	g.Expect(bob.Update(t.Context(), registration)).To(Succeed())
	registration.Spec.MaxPendingHosts = 7
	g.Expect(bob.Update(t.Context(), registration)).To(Succeed())
	registration.Spec.Successor = nil
	g.Expect(alice.Update(t.Context(), registration)).To(Succeed())
	g.Expect(recorded()[1:]).To(HaveExactElements(
		And(ContainSubstring(`change="SuccessorChanged" user="bob"`), ContainSubstring(`urls="https://next.example.com"`), Not(ContainSubstring("CERTIFICATE"))),
		And(ContainSubstring(`change="SuccessorChanged" user="alice"`), ContainSubstring(`urls=""`)),
	))

	grant := &infrav1.ElementalHostGrant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"}}
	grant.Spec.Namespace, grant.Spec.Count = other, new(int32(1))
	g.Expect(alice.Create(t.Context(), grant)).To(Succeed())
	grant.Labels = map[string]string{"a": "b"}
	g.Expect(bob.Update(t.Context(), grant)).To(Succeed())
	grant.Spec.Count = new(int32(2))
	g.Expect(bob.Update(t.Context(), grant)).To(Succeed())
	g.Expect(out.lines("ElementalHostGrant", grant)).To(HaveExactElements(
		And(ContainSubstring(`change="HostsGranted" user="alice"`), ContainSubstring(`toNamespace="`+other+`"`)),
		ContainSubstring(`change="HostsGranted" user="bob"`),
	))
}

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

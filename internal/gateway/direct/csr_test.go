package direct_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
)

// encode returns a request for a certificate, PEM.
func encode(t *testing.T, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func ecKey(t *testing.T, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0") // for the key that is too short
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func edKey(t *testing.T) crypto.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// ann is the subject of the user ann.
func ann() pkix.Name {
	return pkix.Name{CommonName: "ann@example.org", Organization: []string{"ops", "dev"}}
}

func TestKeyOfTheCaller(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	for name, key := range map[string]crypto.Signer{
		"P-256": ecKey(t, elliptic.P256()), "P-384": ecKey(t, elliptic.P384()), "Ed25519": edKey(t), "RSA": rsaKey(t, 2048),
	} {
		config := r.kubeconfig("ann", path+"?user=ann-oidc", encode(t, &x509.CertificateRequest{Subject: ann()}, key))
		info := config.AuthInfos[certified]
		r.Expect(info.ClientKeyData).To(BeEmpty(), name)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		r.Expect(err).NotTo(HaveOccurred())
		info.ClientKeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		is, err := whoami(r.restConfig(config, "c1-h1"))
		r.Expect(err).NotTo(HaveOccurred(), name)
		r.Expect(is.Username).To(Equal("ann@example.org"))
		r.Expect(is.Groups).To(ConsistOf("dev", "ops", "system:authenticated"))
	}
	r.Expect(r.lines).To(HaveEach(ContainSubstring(`"keyOfCaller"=true`)))
}

// Nobody gets a certificate of another user or of more groups, or of names that only a later
// version of Kubernetes may read.
func TestThreat61_CertificatesOfOthers(t *testing.T) {
	startSigner(t, honest)
	key := ecKey(t, elliptic.P256())
	named := func(user string, groups ...string) *x509.CertificateRequest {
		return &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: groups}}
	}
	extra := func(kind ...int) *x509.CertificateRequest {
		name := ann()
		name.ExtraNames = []pkix.AttributeTypeAndValue{{Type: kind, Value: "root"}}
		return &x509.CertificateRequest{Subject: name}
	}
	for name, tc := range map[string]struct {
		request *x509.CertificateRequest
		code    int
	}{
		"another user":           {named("root", "ops", "dev"), http.StatusForbidden},
		"no user":                {named("", "ops", "dev"), http.StatusForbidden},
		"another group":          {named("ann@example.org", "ops", "admins"), http.StatusForbidden},
		"one group more":         {named("ann@example.org", "ops", "dev", "admins"), http.StatusForbidden},
		"one group less":         {named("ann@example.org", "ops"), http.StatusForbidden},
		"a group twice":          {named("ann@example.org", "ops", "dev", "dev"), http.StatusForbidden},
		"administrators":         {named("ann@example.org", "ops", "dev", "system:masters"), http.StatusForbidden},
		"kubeadm's":              {named("ann@example.org", "ops", "dev", "kubeadm:cluster-admins"), http.StatusForbidden},
		"a second user":          {extra(2, 5, 4, 3), http.StatusForbidden},
		"a user ID":              {extra(1, 3, 6, 1, 4, 1, 57683, 2), http.StatusForbidden},
		"an organizational unit": {extra(2, 5, 4, 11), http.StatusForbidden},
		"a DNS name":             {&x509.CertificateRequest{Subject: ann(), DNSNames: []string{"kubernetes"}}, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			got := r.request("ann", path, encode(t, tc.request, key))
			r.Expect(got.code).To(Equal(tc.code), got.body)
			r.Expect(r.lines).To(BeEmpty(), "nothing was issued")
		})
	}
}

// Keys that are too weak, or that cost too much, get no certificates.
func TestThreat61_Keys(t *testing.T) {
	startSigner(t, honest)
	r := newRig(t)
	for name, key := range map[string]crypto.Signer{"a short RSA key": rsaKey(t, 1024), "another curve": ecKey(t, elliptic.P521())} {
		got := r.request("ann", path, encode(t, &x509.CertificateRequest{Subject: ann()}, key))
		r.Expect(got.code).To(Equal(http.StatusBadRequest), name)
		r.Expect(got.body).To(ContainSubstring("the key must be"))
	}
}

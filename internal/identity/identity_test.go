package identity_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	spki, err := identity.PublicKeyBytes(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, identity.Fingerprint(spki)
}

func TestKeySurvivesItsFile(t *testing.T) {
	g := NewWithT(t)
	key, _ := newKey(t)
	data, err := identity.EncodeKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := identity.DecodeKey(data)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.Equal(key)).To(BeTrue())
}

func TestDecodeKeyRefusesOthers(t *testing.T) {
	g := NewWithT(t)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	for _, other := range []any{p384, ed} {
		der, err := x509.MarshalPKCS8PrivateKey(other)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = identity.DecodeKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		g.Expect(errors.Is(err, identity.ErrKeyKind)).To(BeTrue())
	}
	for _, data := range []string{"", "garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		_, err := identity.DecodeKey([]byte(data))
		g.Expect(err).To(HaveOccurred())
	}
}

func TestPeerFingerprintIsTheKeysOwn(t *testing.T) {
	g := NewWithT(t)
	key, fingerprint := newKey(t)
	first, err := identity.ClientCertificate(key)
	g.Expect(err).NotTo(HaveOccurred())
	second, err := identity.ClientCertificate(key)
	g.Expect(err).NotTo(HaveOccurred())
	for _, cert := range []tls.Certificate{first, second} {
		got, err := identity.PeerFingerprint(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(fingerprint))
	}
	g.Expect(fingerprint).To(MatchRegexp(`^sha256:[0-9a-f]{64}$`))

	_, err = identity.PeerFingerprint(&tls.ConnectionState{})
	g.Expect(err).To(HaveOccurred())
	_, err = identity.PeerFingerprint(nil)
	g.Expect(err).To(HaveOccurred())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	cert, err := identity.ClientCertificate(ed)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = identity.PeerFingerprint(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}})
	g.Expect(errors.Is(err, identity.ErrKeyKind)).To(BeTrue())
}

func TestRotation(t *testing.T) {
	g := NewWithT(t)
	_, oldFingerprint := newKey(t)
	key, fingerprint := newKey(t)
	other, otherFingerprint := newKey(t)
	spki, err := identity.PublicKeyBytes(key)
	g.Expect(err).NotTo(HaveOccurred())
	signature, err := identity.SignRotation(key, oldFingerprint)
	g.Expect(err).NotTo(HaveOccurred())

	got, err := identity.VerifyRotation(spki, signature, oldFingerprint)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got).To(Equal(fingerprint))

	_, err = identity.VerifyRotation(spki, signature, otherFingerprint)
	g.Expect(err).To(HaveOccurred(), "a signature replayed for another old key")
	foreign, err := identity.SignRotation(other, oldFingerprint)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = identity.VerifyRotation(spki, foreign, oldFingerprint)
	g.Expect(err).To(HaveOccurred(), "a key that the signer does not hold")
	_, err = identity.VerifyRotation(append(spki, 0), signature, oldFingerprint)
	g.Expect(err).To(HaveOccurred(), "trailing bytes")
	_, err = identity.VerifyRotation(nil, nil, oldFingerprint)
	g.Expect(err).To(HaveOccurred())

	_, ed, err := ed25519.GenerateKey(rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = identity.SignRotation(ed, oldFingerprint)
	g.Expect(errors.Is(err, identity.ErrKeyKind)).To(BeTrue())
}

func TestToken(t *testing.T) {
	g := NewWithT(t)
	token := identity.NewToken()
	g.Expect(token).To(MatchRegexp(`^[A-Za-z0-9_-]{43}$`))
	secret, err := base64.RawURLEncoding.DecodeString(token)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(secret).To(HaveLen(32))
	g.Expect(identity.NewToken()).NotTo(Equal(token))
	hash := identity.HashToken(token)
	g.Expect(regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(hash)).To(BeTrue())
	g.Expect(identity.HashToken(token)).To(Equal(hash))
}

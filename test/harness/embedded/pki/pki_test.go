package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestCertificates(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a, err := NewAuthority("cluster", now)
	g.Expect(err).NotTo(HaveOccurred())
	other, err := NewAuthority("etcd", now)
	g.Expect(err).NotTo(HaveOccurred())

	server, err := a.Server("server")
	g.Expect(err).NotTo(HaveOccurred())
	client, err := a.Client("admin", "system:masters")
	g.Expect(err).NotTo(HaveOccurred())
	peer, err := a.Peer("peer")
	g.Expect(err).NotTo(HaveOccurred())

	verify := func(authority *Authority, pair Pair, name string, usage x509.ExtKeyUsage) error {
		t.Helper()
		parsed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		g.Expect(err).NotTo(HaveOccurred())
		roots := x509.NewCertPool()
		g.Expect(roots.AppendCertsFromPEM(authority.Certificate)).To(BeTrue())
		_, err = parsed.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	g.Expect(verify(a, server, "127.0.0.1", x509.ExtKeyUsageServerAuth)).To(Succeed())
	g.Expect(verify(a, server, "localhost", x509.ExtKeyUsageServerAuth)).To(Succeed())
	g.Expect(verify(a, server, "127.0.0.2", x509.ExtKeyUsageServerAuth)).NotTo(Succeed())
	g.Expect(verify(a, server, "", x509.ExtKeyUsageClientAuth)).NotTo(Succeed(), "a server's certificate makes nobody a user")
	g.Expect(verify(other, server, "127.0.0.1", x509.ExtKeyUsageServerAuth)).NotTo(Succeed())
	g.Expect(verify(a, client, "", x509.ExtKeyUsageClientAuth)).To(Succeed())
	g.Expect(verify(a, client, "", x509.ExtKeyUsageServerAuth)).NotTo(Succeed())
	g.Expect(verify(a, peer, "127.0.0.1", x509.ExtKeyUsageServerAuth)).To(Succeed())
	g.Expect(verify(a, peer, "", x509.ExtKeyUsageClientAuth)).To(Succeed())

	parsed, err := tls.X509KeyPair(client.Certificate, client.Key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed.Leaf.Subject.CommonName).To(Equal("admin"))
	g.Expect(parsed.Leaf.Subject.Organization).To(Equal([]string{"system:masters"}))
}

func TestNewKey(t *testing.T) {
	g := NewWithT(t)
	private, public, err := NewKey()
	g.Expect(err).NotTo(HaveOccurred())
	block, _ := pem.Decode(private)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	block, _ = pem.Decode(public)
	other, err := x509.ParsePKIXPublicKey(block.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(key.(*ecdsa.PrivateKey).PublicKey.Equal(other)).To(BeTrue(), "two halves of one key")
}

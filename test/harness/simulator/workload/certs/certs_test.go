package certs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
)

func authority(g Gomega, isCA bool) (certificate, key []byte) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: isCA, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
}

func TestIssue(t *testing.T) {
	g := NewWithT(t)
	ca, err := certs.Parse(authority(g, true))
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := ca.Issue(certs.Request{
		Name: "box", Groups: []string{"system:nodes"}, DNSNames: []string{"box"}, Addresses: []netip.Addr{netip.MustParseAddr("127.1.2.3")},
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	served, err := pair.TLS()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(served.Leaf.Subject.Organization).To(Equal([]string{"system:nodes"}))
	for _, name := range []string{"box", "127.1.2.3"} {
		_, err = served.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: name})
		g.Expect(err).NotTo(HaveOccurred(), name)
	}
	_, err = served.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: "127.1.2.4"})
	g.Expect(err).To(HaveOccurred())
	_, err = served.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	g.Expect(err).To(HaveOccurred())
}

func TestParseRefused(t *testing.T) {
	g := NewWithT(t)
	certificate, key := authority(g, false)
	_, err := certs.Parse(certificate, key)
	g.Expect(err).To(MatchError(ContainSubstring("not a CA certificate")))
	_, other := authority(g, true)
	_, err = certs.Parse(certificate, other)
	g.Expect(err).To(HaveOccurred())
	_, err = certs.Parse([]byte("x"), key)
	g.Expect(err).To(HaveOccurred())
}

func TestKubeconfigs(t *testing.T) {
	g := NewWithT(t)
	certificate, key := authority(g, true)
	text, err := certs.Kubeconfig("https://127.1.2.3:6443", certificate, "u", certs.Pair{Certificate: certificate, Key: key})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(certs.Server(text)).To(Equal("https://127.1.2.3:6443"))
	_, _, err = certs.ReadInfo(text)
	g.Expect(err).To(MatchError(ContainSubstring("names no cluster")))
	text, err = certs.Info("https://127.1.2.3:6443", certificate)
	g.Expect(err).NotTo(HaveOccurred())
	server, read, err := certs.ReadInfo(text)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server).To(Equal("https://127.1.2.3:6443"))
	g.Expect(read).To(Equal(certificate))
	_, err = certs.Server(text)
	g.Expect(err).To(MatchError(ContainSubstring("names no cluster")))
}

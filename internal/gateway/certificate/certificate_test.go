package certificate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/certificate"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

// authority issues certificates that expire after 90 days.
type authority struct {
	clock   *clocktesting.FakePassiveClock
	issued  int
	names   []string
	changed chan func()
}

func (a *authority) Leaf(_ context.Context, names []string) (*tls.Certificate, error) {
	a.issued++
	a.names = names
	leaf, key, err := issue(int64(a.issued), a.clock.Now().Add(90*24*time.Hour))
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, Leaf: leaf, PrivateKey: key}, err
}

func (a *authority) Bundle(context.Context) (string, error) { return "roots", nil }

func (a *authority) Subscribe(f func()) (stop func()) {
	a.changed <- f
	return func() { close(a.changed) }
}

// run runs a source until the end of the test.
func run(t *testing.T, s certificate.Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// serial makes a handshake, and returns the serial number of the certificate.
func serial(g Gomega, s certificate.Source) int64 {
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{GetCertificate: s.Get, MinVersion: tls.VersionTLS13})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Handshake()
		_ = far.Close()
	}()
	var number int64
	client := tls.Client(near, &tls.Config{
		InsecureSkipVerify: true, // the test looks at the certificate
		MinVersion:         tls.VersionTLS13,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			leaf, err := x509.ParseCertificate(raw[0])
			number = leaf.SerialNumber.Int64()
			return err
		},
	})
	g.Expect(client.Handshake()).To(Succeed())
	_ = near.Close()
	<-done
	return number
}

// expiry returns the metric of a source.
func expiry(g Gomega, s certificate.Source) float64 {
	registry := prometheus.NewRegistry()
	g.Expect(certificate.RegisterMetrics(s, registry)).To(Succeed())
	gathered, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gathered).To(HaveLen(1))
	g.Expect(gathered[0].GetName()).To(Equal("elemental_gateway_certificate_not_after_seconds"))
	return gathered[0].GetMetric()[0].GetGauge().GetValue()
}

func TestIssuedCertificateIsRenewed(t *testing.T) {
	g := NewWithT(t)
	a := &authority{clock: clocktesting.NewFakePassiveClock(time.Now()), changed: make(chan func(), 1)}
	s := certificate.FromAuthority(a, a.clock, "gateway.example.com", "192.0.2.1")
	run(t, s)
	g.Expect(s.CA(t.Context())).To(Equal("roots"))
	g.Expect(serial(g, s)).To(BeEquivalentTo(1))
	g.Expect(expiry(g, s)).To(BeZero(), "it is renewed")
	g.Expect(a.names).To(Equal([]string{"gateway.example.com", "192.0.2.1"}))
	a.clock.SetTime(a.clock.Now().Add(60*24*time.Hour - time.Second))
	g.Expect(serial(g, s)).To(BeEquivalentTo(1))
	a.clock.SetTime(a.clock.Now().Add(2 * time.Second))
	g.Expect(serial(g, s)).To(BeEquivalentTo(2))
	changed := <-a.changed
	changed()
	g.Expect(serial(g, s)).To(BeEquivalentTo(3), "of the CA's new key")
}

// issue returns a certificate that is signed by itself.
func issue(number int64, expires time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "gateway"}, NotAfter: expires}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(raw)
	return cert, key, err
}

// write writes a certificate with a serial number into a folder.
func write(g Gomega, folder string, number int64) {
	cert, key, err := issue(number, time.Now().Add(time.Hour))
	g.Expect(err).NotTo(HaveOccurred())
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: cert.Raw}, "tls.key": {Type: "PRIVATE KEY", Bytes: raw}} {
		g.Expect(os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600)).To(Succeed())
	}
}

func TestFolderIsReadAgain(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	_, err := certificate.FromFolder(folder)
	g.Expect(err).To(MatchError(ContainSubstring("tls.crt")))
	write(g, folder, 1)
	s, err := certificate.FromFolder(folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(serial(g, s)).To(BeEquivalentTo(1))
	g.Expect(expiry(g, s)).To(BeNumerically("~", time.Now().Add(time.Hour).Unix(), 600))
	g.Expect(s.CA(t.Context())).To(BeEmpty())
	g.Expect(os.WriteFile(filepath.Join(folder, "ca.crt"), []byte("roots"), 0o600)).To(Succeed())
	g.Expect(s.CA(t.Context())).To(Equal("roots"))
	run(t, s)
	write(g, folder, 2)
	g.Eventually(func() int64 { return serial(g, s) }).WithTimeout(patience).Should(BeEquivalentTo(2))
}

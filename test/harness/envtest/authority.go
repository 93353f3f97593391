package envtest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	crenvtest "sigs.k8s.io/controller-runtime/pkg/envtest"
)

// serverName is the name by which clients verify the API server of any cluster.
const serverName = "kubernetes.default.svc"

// Authority is the certificate authority of an API server of WithAuthority, as a workload
// cluster has one: the API server trusts its client certificates, and has its certificate
// for the name kubernetes.default.svc.
type Authority struct {
	// Certificate of the authority, PEM.
	Certificate []byte

	certificate *x509.Certificate
	key         crypto.Signer
}

// WithAuthority has the API server use an Authority, which is Environment.Authority.
func WithAuthority() Option { return func(o *options) { o.authority = true } }

func newAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the authority: %w", err)
	}
	a := &Authority{key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, KeyUsage: x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority: %w", err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	a.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, nil
}

// Client returns a client certificate, PEM, for a public key. It is valid from an hour ago.
func (a *Authority) Client(subject pkix.Name, key crypto.PublicKey, end time.Time) ([]byte, error) {
	return a.issue(&x509.Certificate{
		Subject: subject, NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key)
}

func (a *Authority) issue(template *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	template.SerialNumber, template.KeyUsage = serial, x509.KeyUsageDigitalSignature
	template.NotBefore = time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// pair issues a certificate for a new key, and returns both, PEM.
func (a *Authority) pair(template *x509.Certificate) (certificate, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if certificate, err = a.issue(template, key.Public()); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Configure implements envtest.Authn.
func (a *Authority) Configure(folder string, args *crenvtest.Arguments) error {
	certificate, key, err := a.pair(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: []string{serverName}, NotAfter: a.certificate.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, content := range map[string][]byte{"authority.crt": a.Certificate, "named.crt": certificate, "named.key": key} {
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			return fmt.Errorf("writing the certificates of the API server: %w", err)
		}
	}
	args.Set("client-ca-file", path("authority.crt"))
	args.Set("tls-sni-cert-key", path("named.crt")+","+path("named.key"))
	return nil
}

// Start implements envtest.Authn.
func (a *Authority) Start() error { return nil }

// Stop implements envtest.Authn.
func (a *Authority) Stop() error { return nil }

// AddUser implements envtest.Authn.
func (a *Authority) AddUser(user crenvtest.User, base *rest.Config) (*rest.Config, error) {
	config := rest.CopyConfig(base)
	var err error
	config.CertData, config.KeyData, err = a.pair(&x509.Certificate{
		Subject: pkix.Name{CommonName: user.Name, Organization: user.Groups}, NotAfter: a.certificate.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return config, err
}

// Bundle returns the certificates, PEM, with which clients verify the API server by address
// and by its name.
func (e *Environment) Bundle() []byte {
	return bytes.Join([][]byte{e.Config.CAData, e.Authority.Certificate}, []byte("\n"))
}

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// lifetime is the validity of kubeadm's certificates.
const lifetime = 365 * 24 * time.Hour

// Authority is a certificate authority with its key. It is safe for concurrent use.
type Authority struct {
	// Certificate is PEM-encoded.
	Certificate []byte

	certificate *x509.Certificate
	key         crypto.Signer
}

// Parse reads a CA certificate and its key, both PEM-encoded. The key may have any type that Go
// supports.
func Parse(certificate, key []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate authority: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("reading a certificate authority: its key can't sign")
	}
	if !pair.Leaf.IsCA {
		return nil, errors.New("reading a certificate authority: its certificate is not a CA certificate")
	}
	return &Authority{Certificate: certificate, certificate: pair.Leaf, key: signer}, nil
}

// Hash returns the hash by which kubeadm pins the authority.
func (a *Authority) Hash() string { return Hash(a.certificate) }

// Hash returns the hash by which kubeadm pins a certificate: "sha256:" and the hexadecimal hash of
// its public key (RFC 7469).
func Hash(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Pool returns a pool with this authority only.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Request describes a certificate to issue.
type Request struct {
	Name string
	// Groups become the organizations, which Kubernetes reads as groups.
	Groups    []string
	Addresses []netip.Addr
	DNSNames  []string
	Usages    []x509.ExtKeyUsage
}

// Pair is a certificate and its key, both PEM-encoded.
type Pair struct{ Certificate, Key []byte }

// Issue issues a certificate for a new key, valid for a year from now.
func (a *Authority) Issue(r Request, now time.Time) (Pair, error) {
	fail := func(err error) (Pair, error) {
		return Pair{}, fmt.Errorf("issuing a certificate for %s: %w", r.Name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return fail(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: r.Name, Organization: r.Groups},
		// Like kubeadm: the authority may be younger than the host's clock.
		NotBefore: a.certificate.NotBefore, NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: r.Usages,
		DNSNames: r.DNSNames,
	}
	for _, address := range r.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fail(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fail(err)
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}, nil
}

// TLS returns the pair for use in a tls.Config.
func (p Pair) TLS() (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading a certificate: %w", err)
	}
	return pair, nil
}

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime exceeds the life of any embedded cluster, so nothing is renewed.
const lifetime = 365 * 24 * time.Hour

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	// Certificate is the CA certificate (PEM).
	Certificate []byte

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	now         time.Time
}

// Pair is a certificate and its key, PEM.
type Pair struct {
	Certificate, Key []byte
}

// NewAuthority returns a certificate authority. Its certificates are valid for a year, from an hour before now.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of authority %s: %w", name, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of authority %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of authority %s: %w", name, err)
	}
	return &Authority{Certificate: encode("CERTIFICATE", der), certificate: certificate, key: key, now: now}, nil
}

// Server issues a certificate for a server on this machine's loopback, which also has the given names.
func (a *Authority) Server(name string, names ...string) (Pair, error) {
	return a.issue(pkix.Name{CommonName: name}, names, x509.ExtKeyUsageServerAuth)
}

// Client issues a certificate for a user in these groups, as Kubernetes reads it: common name and organisations.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	return a.issue(pkix.Name{CommonName: user, Organization: groups}, nil, x509.ExtKeyUsageClientAuth)
}

// Peer issues a certificate for a server that is also a client of its peers.
func (a *Authority) Peer(name string) (Pair, error) {
	return a.issue(pkix.Name{CommonName: name}, nil, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

func (a *Authority) issue(subject pkix.Name, names []string, usages ...x509.ExtKeyUsage) (Pair, error) {
	key, private, err := newKey()
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of %s: %w", subject.CommonName, err)
	}
	template, err := newTemplate(subject, a.now)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = usages
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", subject.CommonName, err)
	}
	return Pair{Certificate: encode("CERTIFICATE", der), Key: private}, nil
}

// NewKey returns a private key and its public key (PEM).
func NewKey() (private, public []byte, err error) {
	key, private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a public key: %w", err)
	}
	return private, encode("PUBLIC KEY", der), nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, encode("PRIVATE KEY", der), nil
}

func newTemplate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

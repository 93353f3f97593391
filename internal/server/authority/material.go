package authority

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// Keys of the Secret. The signing CA is in tls.crt and tls.key.
const (
	// BundleKey has the root certificates that hosts trust, PEM.
	BundleKey = "ca.crt"
	// NextCertKey and NextKeyKey have the next CA during a rotation.
	NextCertKey = "next.crt"
	NextKeyKey  = "next.key"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	// backdate is how long a CA is valid before its creation. A host whose clock was
	// reset assumes the build time of its agent, which may be long before. As the roots
	// are pinned, this does not reduce security.
	backdate = 5 * 365 * 24 * time.Hour
	// maxRoots bounds the bundle, which is part of every plan.
	maxRoots = 8
)

// material is the parsed content of the Secret.
type material struct {
	signer pair
	// next is the next CA during a rotation, or nil.
	next *pair
	// bundle is PEM, roots are its certificates.
	bundle string
	roots  []*x509.Certificate
	// data is the Secret's, to restore it when it is deleted.
	data map[string][]byte
}

// pair is a CA's certificate and private key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// parse parses and checks the data of the Secret.
func parse(data map[string][]byte) (*material, error) {
	signer, err := parsePair(data, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	if err != nil {
		return nil, err
	}
	roots, err := parseRoots(data[BundleKey])
	if err != nil {
		return nil, err
	}
	if len(anchors(signer.cert, roots)) == 0 {
		return nil, fmt.Errorf("%s does not chain to a root in %s", corev1.TLSCertKey, BundleKey)
	}
	m := &material{signer: *signer, roots: roots, bundle: string(data[BundleKey]), data: maps.Clone(data)}
	if len(data[NextCertKey]) > 0 || len(data[NextKeyKey]) > 0 {
		if m.next, err = parsePair(data, NextCertKey, NextKeyKey); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func parsePair(data map[string][]byte, certKey, keyKey string) (*pair, error) {
	block, _ := pem.Decode(data[certKey])
	if block == nil {
		return nil, errors.New(certKey + " is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", certKey, err)
	}
	key, err := identity.DecodeKey(data[keyKey])
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", keyKey, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s and %s don't belong together", certKey, keyKey)
	}
	if !cert.IsCA {
		return nil, errors.New(certKey + " is not a CA's certificate")
	}
	return &pair{cert: cert, key: key}, nil
}

// parseRoots parses the bundle, which must contain only certificates, as agents do.
func parseRoots(bundle []byte) ([]*x509.Certificate, error) {
	var roots []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s must hold certificates only, not %q", BundleKey, block.Type)
		}
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", BundleKey, err)
		}
		if len(roots) == maxRoots {
			return nil, fmt.Errorf("%s must hold at most %d certificates", BundleKey, maxRoots)
		}
		roots = append(roots, root)
	}
	if len(roots) == 0 {
		return nil, errors.New(BundleKey + " holds no certificate")
	}
	return roots, nil
}

// anchors returns the roots that the certificate chains to.
func anchors(cert *x509.Certificate, roots []*x509.Certificate) []*x509.Certificate {
	var found []*x509.Certificate
	for _, root := range roots {
		pool := x509.NewCertPool()
		pool.AddCert(root)
		if _, err := cert.Verify(x509.VerifyOptions{
			Roots: pool, CurrentTime: cert.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		}); err == nil {
			found = append(found, root)
		}
	}
	return found
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// encode returns the pair as PEM.
func (p *pair) encode() (cert, key []byte, err error) {
	if key, err = identity.EncodeKey(p.key); err != nil {
		return nil, nil, err
	}
	return encodeCert(p.cert), key, nil
}

// newPair returns a new root CA. Its name has the time, so that error messages show
// which CA they mean.
func newPair(now time.Time) (*pair, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "elemental agent API authority " + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(template, nil, key, key)
	if err != nil {
		return nil, err
	}
	return &pair{cert: cert, key: key}, nil
}

// sign returns a signed certificate. Without a parent it is self-signed.
func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing serial number: %w", err)
	}
	template.SerialNumber = serial
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("signing certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate: %w", err)
	}
	return cert, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

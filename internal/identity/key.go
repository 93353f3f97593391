package identity

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
	"time"
)

const (
	keyPEMType        = "PRIVATE KEY"
	fingerprintPrefix = "sha256:"
)

// ErrKeyKind is returned for keys that are not ECDSA on P-256, which every TPM
// supports.
var ErrKeyKind = errors.New("key is not ECDSA on P-256")

// NewKey returns a new host key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating key: %w", err)
	}
	return key, nil
}

// EncodeKey returns the key as PEM (PKCS #8), the content of the agent's key
// file.
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyPEMType, Bytes: der}), nil
}

// DecodeKey reads the output of EncodeKey.
func DecodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != keyPEMType {
		return nil, errors.New("decoding key: no PEM block of type " + keyPEMType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("decoding key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("decoding key: %w", ErrKeyKind)
	}
	return key, nil
}

// PublicKeyBytes returns the key's public half as DER-encoded Subject Public Key
// Info, which is what Fingerprint and protocol.RotateRequest take.
func PublicKeyBytes(key crypto.Signer) ([]byte, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding public key: %w", err)
	}
	return spki, nil
}

// Fingerprint identifies a key by "sha256:" and the hex SHA-256 of its DER-encoded
// Subject Public Key Info.
func Fingerprint(spki []byte) string {
	sum := sha256.Sum256(spki)
	return fingerprintPrefix + hex.EncodeToString(sum[:])
}

// ClientCertificate returns the certificate that a host presents for its key, which may
// be in a TPM. It never expires, because the manager checks only the key.
func ClientCertificate(key crypto.Signer) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "elemental host"},
		NotBefore:    time.Unix(0, 0),
		// RFC 5280, 4.1.2.5: a certificate without a well-defined expiration.
		NotAfter:    time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("signing client certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parsing client certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// PeerFingerprint returns the fingerprint of the key that the peer of a TLS connection
// has proven to hold. It ignores everything else in the certificate.
func PeerFingerprint(state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return "", errors.New("reading peer key: no client certificate")
	}
	leaf := state.PeerCertificates[0]
	if _, err := p256(leaf.PublicKey); err != nil {
		return "", fmt.Errorf("reading peer key: %w", err)
	}
	return Fingerprint(leaf.RawSubjectPublicKeyInfo), nil
}

func p256(public any) (*ecdsa.PublicKey, error) {
	key, ok := public.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, ErrKeyKind
	}
	return key, nil
}

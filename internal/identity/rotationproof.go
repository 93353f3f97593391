package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
)

// rotationContext makes the signature of a rotation invalid for any other purpose.
const rotationContext = "elemental host key rotation v1\n"

// SignRotation returns a signature that proves possession of the new key. It is valid
// for one rotation, because it contains the old key's fingerprint.
func SignRotation(newKey crypto.Signer, oldFingerprint string) ([]byte, error) {
	if _, err := p256(newKey.Public()); err != nil {
		return nil, fmt.Errorf("signing rotation: %w", err)
	}
	digest := rotationDigest(oldFingerprint)
	signature, err := newKey.Sign(rand.Reader, digest, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("signing rotation: %w", err)
	}
	return signature, nil
}

// VerifyRotation checks a signature made by SignRotation and returns the new
// key's fingerprint. The public key is DER-encoded Subject Public Key Info.
func VerifyRotation(newPublicKey, signature []byte, oldFingerprint string) (string, error) {
	parsed, err := x509.ParsePKIXPublicKey(newPublicKey)
	if err != nil {
		return "", fmt.Errorf("parsing new public key: %w", err)
	}
	key, err := p256(parsed)
	if err != nil {
		return "", fmt.Errorf("parsing new public key: %w", err)
	}
	// Each key must have only one fingerprint: that of its certificates.
	canonical, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding new public key: %w", err)
	}
	if !bytes.Equal(canonical, newPublicKey) {
		return "", errors.New("parsing new public key: not in canonical form")
	}
	if !ecdsa.VerifyASN1(key, rotationDigest(oldFingerprint), signature) {
		return "", errors.New("verifying rotation: the signature is not the new key's")
	}
	return Fingerprint(newPublicKey), nil
}

func rotationDigest(oldFingerprint string) []byte {
	digest := sha256.Sum256([]byte(rotationContext + oldFingerprint))
	return digest[:]
}

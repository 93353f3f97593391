package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lifetime exceeds that of any lab, so certificates are never renewed.
const lifetime = 10 * 365 * 24 * time.Hour

// request is the content of a Certificate's spec.
type request struct {
	commonName    string
	organizations []string
	dnsNames      []string
	ipAddresses   []string
}

// issue returns the data of a TLS Secret with a new key and a certificate signed by it.
func issue(r request, now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: r.commonName, Organization: r.organizations},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              r.dnsNames,
	}
	for _, text := range r.ipAddresses {
		ip := net.ParseIP(text)
		if ip == nil {
			return nil, fmt.Errorf("reading IP address %q: it is none", text)
		}
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return map[string][]byte{
		corev1.TLSCertKey:              text,
		corev1.TLSPrivateKeyKey:        pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		corev1.ServiceAccountRootCAKey: text,
	}, nil
}

// fulfils reports whether the data of a Secret still matches a Certificate.
func fulfils(data map[string][]byte, r request, now time.Time) bool {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil || len(data[corev1.ServiceAccountRootCAKey]) == 0 {
		return false
	}
	certificate := pair.Leaf
	if now.Before(certificate.NotBefore) || now.Add(lifetime/10).After(certificate.NotAfter) {
		return false
	}
	for _, name := range append(append([]string{}, r.dnsNames...), r.ipAddresses...) {
		if certificate.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// +kubebuilder:rbac:groups="",namespace=system,resources=secrets,verbs=get;create

// SecretName is the name of the Secret with the authority, in the manager's
// namespace.
const SecretName = "elemental-agent-api-ca"

// BundleKey holds the roots that hosts are told to trust, PEM. An administrator
// who replaces the authority publishes both roots first.
const BundleKey = "ca.crt"

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime of serving certificates.
	LeafLifetime = 90 * 24 * time.Hour
	// backdate: a host whose clock was reset goes by the time its agent was
	// built, which may be long before the authority was made. That a certificate
	// was not valid yet proves nothing here, as the roots are pinned.
	backdate = 5 * 365 * 24 * time.Hour
)

// Authority issues the agent API's serving certificates. It reads its Secret, or
// makes it, when it is first needed.
type Authority struct {
	reader client.Reader
	writer client.Writer
	secret types.NamespacedName
	clock  clock.PassiveClock

	mu     sync.Mutex
	loaded *material
}

// material is what the Secret holds.
type material struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	bundle string
}

// New returns the authority of the manager in that namespace. The reader must
// not be a cache.
func New(reader client.Reader, writer client.Writer, namespace string, c clock.PassiveClock) *Authority {
	return &Authority{
		reader: reader, writer: writer, clock: c,
		secret: types.NamespacedName{Namespace: namespace, Name: SecretName},
	}
}

// Bundle returns the roots that hosts are to trust, PEM.
func (a *Authority) Bundle(ctx context.Context) (string, error) {
	m, err := a.load(ctx)
	if err != nil {
		return "", err
	}
	return m.bundle, nil
}

// Leaf issues a serving certificate for these host names and IP addresses.
func (a *Authority) Leaf(ctx context.Context, names []string) (*tls.Certificate, error) {
	m, err := a.load(ctx)
	if err != nil {
		return nil, err
	}
	key, err := identity.NewKey()
	if err != nil {
		return nil, fmt.Errorf("issuing serving certificate: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "elemental agent API"},
		NotBefore:   m.cert.NotBefore,
		NotAfter:    earlier(a.clock.Now().Add(LeafLifetime), m.cert.NotAfter),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	leaf, err := sign(template, m.cert, key, m.key)
	if err != nil {
		return nil, fmt.Errorf("issuing serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func (a *Authority) load(ctx context.Context) (*material, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.loaded != nil {
		return a.loaded, nil
	}
	secret := &corev1.Secret{}
	err := a.reader.Get(ctx, a.secret, secret)
	if apierrors.IsNotFound(err) {
		secret, err = a.create(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("reading agent API authority: %w", err)
	}
	m, err := parse(secret)
	if err != nil {
		// Making another would cut off every host, so a person has to look.
		return nil, fmt.Errorf("reading agent API authority from Secret %s: %w", a.secret, err)
	}
	a.loaded = m
	return m, nil
}

// create makes the Secret. Whoever comes second uses the first one's.
func (a *Authority) create(ctx context.Context) (*corev1.Secret, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	now := a.clock.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "elemental agent API authority"},
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
	keyPEM, err := identity.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.secret.Namespace, Name: a.secret.Name},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       certPEM,
			corev1.TLSPrivateKeyKey: keyPEM,
			BundleKey:               certPEM,
		},
	}
	err = a.writer.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = a.reader.Get(ctx, a.secret, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("creating Secret %s: %w", a.secret, err)
	}
	return secret, nil
}

func parse(secret *corev1.Secret) (*material, error) {
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, errors.New(corev1.TLSCertKey + " is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", corev1.TLSCertKey, err)
	}
	key, err := identity.DecodeKey(secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", corev1.TLSPrivateKeyKey, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("key and certificate don't belong together")
	}
	roots := x509.NewCertPool()
	bundle := secret.Data[BundleKey]
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New(BundleKey + " holds no certificate")
	}
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: cert.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return nil, fmt.Errorf("looking for the authority in %s: %w", BundleKey, err)
	}
	return &material{cert: cert, key: key, bundle: string(bundle)}, nil
}

// sign makes a certificate; without a parent it is self-signed.
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

package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/subscription"
)

// SecretName is the name of the CA's Secret in the manager's namespace.
const SecretName = "elemental-agent-api-ca"

// LeafLifetime is that of serving certificates.
const LeafLifetime = 90 * 24 * time.Hour

// Authority issues the agent API's serving certificates. It reads or creates its Secret
// at the first use. It is safe for concurrent use.
type Authority struct {
	reader client.Reader
	writer client.Writer
	secret types.NamespacedName
	clock  clock.PassiveClock
	// changed has the functions to call when roots or signer change.
	changed subscription.List

	mu     sync.Mutex
	loaded *material
}

// New returns the authority of a manager in that namespace. The reader must read from
// the API server.
func New(reader client.Reader, writer client.Writer, namespace string, c clock.PassiveClock) *Authority {
	return &Authority{
		reader: reader, writer: writer, clock: c,
		secret: types.NamespacedName{Namespace: namespace, Name: SecretName},
	}
}

// Bundle returns the root certificates that hosts trust, PEM.
func (a *Authority) Bundle(ctx context.Context) (string, error) {
	m, err := a.load(ctx)
	if err != nil {
		return "", err
	}
	return m.bundle, nil
}

// Subscribe calls f after each change of the root certificates or the signing key, until
// stop is called. f must return quickly.
func (a *Authority) Subscribe(f func()) (stop func()) { return a.changed.Add(f) }

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
		NotBefore:   m.signer.cert.NotBefore,
		NotAfter:    earlier(a.clock.Now().Add(LeafLifetime), m.signer.cert.NotAfter),
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
	leaf, err := sign(template, m.signer.cert, key, m.signer.key)
	if err != nil {
		return nil, fmt.Errorf("issuing serving certificate: %w", err)
	}
	chain := [][]byte{leaf.Raw}
	if !slices.ContainsFunc(m.roots, m.signer.cert.Equal) {
		chain = append(chain, m.signer.cert.Raw) // an intermediate CA, which hosts don't have
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
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
	m, err := parse(secret.Data)
	if err != nil {
		// A new CA would disconnect every host, so an administrator has to repair it.
		return nil, fmt.Errorf("reading agent API authority from Secret %s: %w", a.secret, err)
	}
	a.loaded = m
	return m, nil
}

// current returns the material in use, or nil before the first use.
func (a *Authority) current() *material {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.loaded
}

// use replaces the material in use and calls the subscribers if roots or signer changed.
// It returns the previous material, or nil.
func (a *Authority) use(m *material) *material {
	a.mu.Lock()
	before := a.loaded
	a.loaded = m
	a.mu.Unlock()
	if before == nil || before.bundle != m.bundle || !before.signer.cert.Equal(m.signer.cert) {
		a.changed.Changed()
	}
	return before
}

// create creates the Secret. If another process was faster, it returns that one's.
func (a *Authority) create(ctx context.Context) (*corev1.Secret, error) {
	made, err := newPair(a.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("making the authority: %w", err)
	}
	certPEM, keyPEM, err := made.encode()
	if err != nil {
		return nil, err
	}
	secret := a.object(map[string][]byte{
		corev1.TLSCertKey:       certPEM,
		corev1.TLSPrivateKeyKey: keyPEM,
		BundleKey:               certPEM,
	})
	err = a.writer.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = a.reader.Get(ctx, a.secret, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("creating Secret %s: %w", a.secret, err)
	}
	return secret, nil
}

// object returns the Secret with that data.
func (a *Authority) object(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.secret.Namespace, Name: a.secret.Name},
		Type:       corev1.SecretTypeTLS,
		Data:       data,
	}
}

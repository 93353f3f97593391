package listener

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

// issueTimeout bounds how long a handshake waits for a certificate.
const issueTimeout = 10 * time.Second

// Issuer issues serving certificates.
type Issuer interface {
	Leaf(ctx context.Context, names []string) (*tls.Certificate, error)
}

// Certificates issues and caches serving certificates for all names that a registration or
// the manager publishes. Each DNS name has its own certificate, so that a caller learns no
// other names; IP addresses share one, because clients send no server name for them. A
// certificate is issued again when the names or the CA changed, and after two thirds of its
// lifetime. It is safe for concurrent use.
type Certificates struct {
	issuer     Issuer
	reader     client.Reader
	clock      clock.PassiveClock
	url        string
	serviceDNS string

	mu     sync.Mutex
	names  *names
	leaves map[string]servingLeaf
}

type servingLeaf struct {
	cert    *tls.Certificate
	renewAt time.Time
}

// NewCertificates returns Certificates. The reader reads ElementalRegistrations from a
// cache. url is the manager's own server URL and may be empty; serviceDNS is the DNS name of
// its Service.
func NewCertificates(issuer Issuer, reader client.Reader, c clock.PassiveClock, url, serviceDNS string) *Certificates {
	return &Certificates{issuer: issuer, reader: reader, clock: c, url: url, serviceDNS: serviceDNS}
}

// RegistrationsChanged makes the next handshake read the published names again.
func (c *Certificates) RegistrationsChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = nil
}

// AuthorityChanged drops all certificates, so that they are issued with the current key
// of the CA.
func (c *Certificates) AuthorityChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.leaves)
}

// Get implements tls.Config.GetCertificate.
func (c *Certificates) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.get(hello.Context(), hello.ServerName, hello.Conn.LocalAddr())
}

func (c *Certificates) get(ctx context.Context, serverName string, localAddr net.Addr) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	var local netip.Addr
	if tcp, ok := localAddr.(*net.TCPAddr); ok {
		local = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.readNames(ctx); err != nil {
		return nil, err
	}
	key, in := c.names.certificate(strings.TrimSuffix(strings.ToLower(serverName), "."), local)
	now := c.clock.Now()
	if leaf, ok := c.leaves[key]; ok && now.Before(leaf.renewAt) {
		return leaf.cert, nil
	}
	cert, err := c.issuer.Leaf(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("issuing certificate: %w", err)
	}
	c.leaves[key] = servingLeaf{cert: cert, renewAt: now.Add(cert.Leaf.NotAfter.Sub(now) * 2 / 3)}
	return cert, nil
}

// readNames reads the published names if they are not known.
func (c *Certificates) readNames(ctx context.Context) error {
	if c.names != nil {
		return nil
	}
	var registrations infrav1.ElementalRegistrationList
	if err := c.reader.List(ctx, &registrations, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing registrations: %w", err)
	}
	own := []string{c.serviceDNS}
	if name := enrolment.ServerHost(c.url); name != "" {
		if address, ok := parseAddress(name); ok {
			name = address.String()
		}
		own = append(own, name)
	}
	slices.Sort(own)
	c.names, c.leaves = publishedNames(slices.Compact(own), registrations.Items), map[string]servingLeaf{}
	if left := c.names.leftOut(); left > 0 {
		ctrl.LoggerFrom(ctx).Info("Registrations publish more names or addresses than serving certificates may have; "+
			"publish DNS names instead of addresses, or fewer of them in one namespace", "leftOut", left)
	}
	return nil
}

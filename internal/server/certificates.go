package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

const (
	// ServiceName is the name of the Service in front of the agent API.
	ServiceName = "elemental-agent-api"
	// maxIPs bounds the addresses in one certificate.
	maxIPs = 64
	// issueTimeout bounds a handshake's wait for a certificate; only the first
	// asks the API server for anything.
	issueTimeout = 10 * time.Second
)

// Authority issues serving certificates and publishes the roots they chain to.
type Authority interface {
	Leaf(ctx context.Context, names []string) (*tls.Certificate, error)
	Bundle(ctx context.Context) (string, error)
	// Subscribe has f called after a change of the roots or of the signing key,
	// until stop is called.
	Subscribe(f func()) (stop func())
}

// certificates serves a certificate for every name that a registration, or the
// manager, publishes: one for each DNS name, so that nobody learns others' names,
// and one for all IP addresses, which no client asks for by name. They are made
// when they are asked for, again when the names or the authority changed and
// after two thirds of their life.
type certificates struct {
	authority  Authority
	reader     client.Reader
	clock      clock.PassiveClock
	url        string
	serviceDNS string

	mu     sync.Mutex
	names  map[string]bool
	leaves map[string]servingLeaf
}

type servingLeaf struct {
	cert    *tls.Certificate
	renewAt time.Time
}

// invalidate has the names looked up again.
func (c *certificates) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = nil
}

// reissue has certificates made anew, by the authority's present key.
func (c *certificates) reissue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.leaves)
}

// rootsChanged follows the authority: the next handshake shows a certificate of
// the key that signs now, and every waiting host is told the roots.
func (s *Server) rootsChanged() {
	s.certificates.reissue()
	s.presence.wakeAll()
}

// get implements tls.Config.GetCertificate.
func (c *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(hello.Context(), issueTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.lookUp(ctx); err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")
	if !c.names[name] {
		name = "" // by IP address, or by a name that only the default can answer
	}
	now := c.clock.Now()
	if leaf, ok := c.leaves[name]; ok && now.Before(leaf.renewAt) {
		return leaf.cert, nil
	}
	names := []string{name}
	if name == "" {
		names = c.defaultNames()
	}
	cert, err := c.authority.Leaf(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("issuing certificate: %w", err)
	}
	c.leaves[name] = servingLeaf{cert: cert, renewAt: now.Add(cert.Leaf.NotAfter.Sub(now) * 2 / 3)}
	return cert, nil
}

// lookUp finds the names that certificates are for.
func (c *certificates) lookUp(ctx context.Context) error {
	if c.names != nil {
		return nil
	}
	var registrations infrav1.ElementalRegistrationList
	if err := c.reader.List(ctx, &registrations, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing registrations: %w", err)
	}
	names := map[string]bool{c.serviceDNS: true}
	if name := enrolment.Host(c.url); name != "" {
		names[name] = true
	}
	for i := range registrations.Items {
		if name := enrolment.Host(enrolment.URL(&registrations.Items[i], "")); name != "" {
			names[name] = true
		}
	}
	c.names, c.leaves = names, map[string]servingLeaf{}
	return nil
}

// defaultNames are the IP addresses, the manager's own name and the Service.
func (c *certificates) defaultNames() []string {
	var ips []string
	for name := range c.names {
		if net.ParseIP(name) != nil {
			ips = append(ips, name)
		}
	}
	slices.Sort(ips)
	ips = ips[:min(len(ips), maxIPs)]
	if name := enrolment.Host(c.url); name != "" && net.ParseIP(name) == nil {
		ips = append(ips, name)
	}
	return append(ips, c.serviceDNS)
}

package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// timeout is the time limit of one probe.
const timeout = 3 * time.Second

var errTimeout = fmt.Errorf("no answer within %s", timeout)

// isAnswer reports whether the API server works. An API server without anonymous
// access answers 401 or 403 even if it is ready.
func isAnswer(status int) bool {
	return status == http.StatusOK || status == http.StatusUnauthorized || status == http.StatusForbidden
}

// authorities are the certificate authorities of the API servers of kubeadm, k3s
// and RKE2.
func authorities() []string {
	return []string{
		"/etc/kubernetes/pki/ca.crt", "/var/lib/rancher/k3s/server/tls/server-ca.crt", "/var/lib/rancher/rke2/server/tls/server-ca.crt",
		"/var/lib/rancher/k3s/agent/server-ca.crt", "/var/lib/rancher/rke2/agent/server-ca.crt",
	}
}

// roots reads the certificate authority again for each probe, because it may be
// replaced.
func (p *Prober) roots() (*x509.CertPool, error) {
	data, path, err := p.readFirst(authorities())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("reading the cluster's certificate authority: there is no certificate in %s", path)
	}
	return pool, nil
}

// readFirst reads the first of the files that exists.
func (p *Prober) readFirst(paths []string) (data []byte, path string, err error) {
	for _, path := range paths {
		data, err = os.ReadFile(filepath.Join(p.o.Root, path))
		if err == nil {
			return data, path, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, "", err
		}
	}
	return nil, "", err
}

// probeEndpoint connects as a client would: a certificate for other names is a
// failure.
func (p *Prober) probeEndpoint(ctx context.Context, host, port string) outcome {
	roots, err := p.roots()
	if err != nil {
		return outcome{Unknown, err.Error()}
	}
	return p.get(ctx, net.JoinHostPort(host, port), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host, Time: p.o.Clock.Now})
}

// server is what a probe found out about the host's API server.
type server struct {
	// address is where it is reached.
	address string
	// names are those in its certificate.
	names []string
}

// probeAPIServer probes the host's API server. It accepts a certificate with any
// names.
func (p *Prober) probeAPIServer(ctx context.Context, port string) (o outcome, s server) {
	roots, err := p.roots()
	if err != nil {
		return outcome{Unknown, err.Error()}, server{}
	}
	target, err := p.apiServerAddress(port)
	if err != nil {
		return outcome{Unknown, err.Error()}, server{}
	}
	// The handshake may continue after the probe's timeout, so this is atomic.
	var verified atomic.Pointer[x509.Certificate]
	verify := func(state tls.ConnectionState) error {
		chain := x509.VerifyOptions{
			Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: p.o.Clock.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, intermediate := range state.PeerCertificates[1:] {
			chain.Intermediates.AddCert(intermediate)
		}
		if _, err := state.PeerCertificates[0].Verify(chain); err != nil {
			return err
		}
		verified.Store(state.PeerCertificates[0])
		return nil
	}
	o = p.get(ctx, target, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // verify checks everything but the name
		VerifyConnection:   verify,
	})
	if _, err := netip.ParseAddrPort(target); err == nil {
		s.address = target
	}
	if certificate := verified.Load(); certificate != nil {
		s.names = namesOf(certificate)
	}
	return o, s
}

// apiServerAddress returns the host:port of this host's API server. port is used if its
// own is unknown.
func (p *Prober) apiServerAddress(port string) (string, error) {
	server, _, err := apiserver.Find(p.o.Root)
	if err != nil {
		return "", err
	}
	return server.Address(p.o.LocalAddresses(), port)
}

// namesOf returns the sorted names in a certificate. If there are too many, it
// prefers IP addresses, because endpoints move between these.
func namesOf(certificate *x509.Certificate) []string {
	var names []string
	for _, ip := range certificate.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, certificate.DNSNames...)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" || len(name) > maxName })
	names = names[:min(len(names), protocol.MaxDevices)]
	slices.Sort(names)
	return slices.Compact(names)
}

// maxName is the maximum length of a DNS name (RFC 1035).
const maxName = 253

// get requests /readyz over a new connection: an existing connection would not
// show that other clients can no longer connect. It uses no proxy, because the
// host's kubelet connects to the endpoint directly.
func (p *Prober) get(ctx context.Context, target string, settings *tls.Config) outcome {
	ctx, cancel := p.withTimeout(ctx, timeout)
	defer cancel()
	transport := &http.Transport{
		DialContext: p.o.Dial, TLSClientConfig: settings, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaderBytes,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "https", Host: target, Path: "/readyz"}).String(), http.NoBody)
	if err != nil {
		return outcome{Unknown, err.Error()}
	}
	response, err := client.Do(request)
	if err != nil {
		return failed(reason(ctx, err))
	}
	// Only the status matters.
	_ = response.Body.Close()
	if ctx.Err() != nil {
		// A server may answer the end of the connection.
		return failed(context.Cause(ctx))
	}
	return answered(response.StatusCode)
}

// maxHeaderBytes limits the size of a response's header.
const maxHeaderBytes = 16 << 10

// reason returns an error without the URL, which the caller knows.
func reason(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// withTimeout is context.WithTimeout with the Prober's clock.
func (p *Prober) withTimeout(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if p.o.Clock.Wait(ctx, d) == nil {
			cancel(errTimeout)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-over
	}
}

// Ready requests /readyz of the API server at an address, host:port, whose certificate has
// to cover name. It returns nil if that answers, and if the host cannot tell.
func (p *Prober) Ready(ctx context.Context, address, name string) error {
	roots, err := p.roots()
	if err != nil {
		return nil //nolint:nilerr // before a bootstrap there is no certificate authority
	}
	o := p.get(ctx, address, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: name, Time: p.o.Clock.Now})
	if o.result == Fails {
		return errors.New(o.message)
	}
	return nil
}

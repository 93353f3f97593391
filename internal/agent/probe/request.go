package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// timeout bounds one probe.
const timeout = 3 * time.Second

var errTimeout = fmt.Errorf("no answer within %s", timeout)

// isAnswer reports whether a status shows an API server that works. One without
// anonymous access refuses to say whether it is ready.
func isAnswer(status int) bool {
	return status == http.StatusOK || status == http.StatusUnauthorized || status == http.StatusForbidden
}

// authorities are where kubeadm, k3s and RKE2 keep the certificate authority of
// their API servers.
func authorities() []string {
	return []string{
		"/etc/kubernetes/pki/ca.crt", "/var/lib/rancher/k3s/server/tls/server-ca.crt", "/var/lib/rancher/rke2/server/tls/server-ca.crt",
	}
}

// roots reads them anew each time: they may be replaced.
func (p *Prober) roots() (*x509.CertPool, error) {
	data, path, err := p.first(authorities())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("reading the cluster's certificate authority: there is no certificate in %s", path)
	}
	return pool, nil
}

// first reads the first of the files that is there.
func (p *Prober) first(paths []string) (data []byte, path string, err error) {
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

// probeEndpoint asks as a client would: a certificate that is for other names is
// as bad as none.
func (p *Prober) probeEndpoint(ctx context.Context, host, port string) outcome {
	roots, err := p.roots()
	if err != nil {
		return outcome{Unknown, err.Error()}
	}
	return p.get(ctx, net.JoinHostPort(host, port), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host, Time: p.o.Clock.Now})
}

// probeOwn asks the host's own API server, whatever names its certificate is
// for, and returns those.
func (p *Prober) probeOwn(ctx context.Context, port string) (o outcome, names []string) {
	roots, err := p.roots()
	if err != nil {
		return outcome{Unknown, err.Error()}, nil
	}
	target, err := p.own(port)
	if err != nil {
		return outcome{Unknown, err.Error()}, nil
	}
	// A handshake may go on after the probe has given up on it.
	var seen atomic.Pointer[x509.Certificate]
	verify := func(state tls.ConnectionState) error {
		chain := x509.VerifyOptions{
			Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: p.o.Clock.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, between := range state.PeerCertificates[1:] {
			chain.Intermediates.AddCert(between)
		}
		if _, err := state.PeerCertificates[0].Verify(chain); err != nil {
			return err
		}
		seen.Store(state.PeerCertificates[0])
		return nil
	}
	o = p.get(ctx, target, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // verify does it, but for the name
		VerifyConnection:   verify,
	})
	if certificate := seen.Load(); certificate != nil {
		names = namesOf(certificate)
	}
	return o, names
}

// namesOf are the names that a certificate is good for, sorted. Of too many the
// addresses count, because those are what endpoints move between.
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

// maxName is the length of a DNS name, RFC 1035.
const maxName = 253

// get asks whether a server is ready, over a connection of its own: one that is
// kept would not show that nobody else can connect any more. No proxy is used,
// because the endpoint is where the host's own kubelet connects to.
func (p *Prober) get(ctx context.Context, target string, settings *tls.Config) outcome {
	ctx, done := p.within(ctx, timeout)
	defer done()
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
		return fails(reason(ctx, err))
	}
	// What it says beside the status is for people.
	_ = response.Body.Close()
	return answered(response.StatusCode)
}

// maxHeaderBytes bounds what is read of an answer.
const maxHeaderBytes = 16 << 10

// reason is an error without the URL, which everybody knows.
func reason(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// within is context.WithTimeout by the Prober's clock.
func (p *Prober) within(ctx context.Context, d time.Duration) (context.Context, func()) {
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

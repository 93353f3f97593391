package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// ParseTrustBundle reads PEM certificates; nothing else may be in it.
func ParseTrustBundle(bundle string) (*x509.CertPool, error) {
	pool, rest, count := x509.NewCertPool(), []byte(bundle), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a trust bundle holds certificates only, not %q", block.Type)
		}
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing certificate %d of the trust bundle: %w", count+1, err)
		}
		pool.AddCert(root)
		count++
	}
	if count == 0 {
		return nil, errors.New("the trust bundle holds no PEM certificate")
	}
	return pool, nil
}

// ParseServer checks a server's base URL.
func ParseServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return nil, fmt.Errorf("server %q is not a URL", server)
	case u.Scheme != "https":
		return nil, fmt.Errorf("server %q does not begin with https://", server)
	case u.Hostname() == "":
		return nil, fmt.Errorf("server %q names no host", server)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("server %q has more than https://host:port/path", u.Redacted())
	}
	return u, nil
}

// reckoning is what the client believes the time to be.
type reckoning struct {
	now   func() time.Time
	built time.Time

	mu sync.Mutex
	// told is the latest time that a server told; heard is when it did, on a
	// clock that only runs forward.
	told, heard time.Time
	// distrust is true once the host's clock is known to be too far ahead.
	distrust bool
}

// time is the time at which certificates are verified.
func (r *reckoning) time() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	known := latest(r.built, r.servers(now))
	if r.distrust {
		return known
	}
	return latest(known, now)
}

// servers is the time at the server, as far as it is known; zero if it isn't.
func (r *reckoning) servers(now time.Time) time.Time {
	if r.told.IsZero() || r.heard.IsZero() {
		return r.told
	}
	// The difference is taken on the monotonic clock, which setting the host's
	// clock doesn't touch.
	return r.told.Add(max(now.Sub(r.heard), 0))
}

func (r *reckoning) sawServerTime(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// What an earlier run was told may be later; the time goes on from there, and
	// not by the host's clock.
	if at.After(r.told) || r.heard.IsZero() {
		r.told, r.heard = latest(at, r.told), r.now()
	}
}

// doubt makes the host's clock count no longer, if that changes anything for
// an error that says a certificate has expired. Asked by several requests at
// once, it answers all of them alike.
func (r *reckoning) doubt(err error) bool {
	if !isExpired(err) {
		return false
	}
	before := r.time()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.distrust {
		return true
	}
	if r.told.IsZero() || !latest(r.built, r.told).Before(before) {
		return false
	}
	r.distrust = true
	return true
}

// believe takes a doubt back that explained nothing.
func (r *reckoning) believe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distrust = false
}

// isExpired reports whether a certificate is not valid at the time.
func isExpired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *reckoning) tlsConfig(roots *x509.CertPool, certificate tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		Certificates: []tls.Certificate{certificate},
		Time:         r.time,
	}
}

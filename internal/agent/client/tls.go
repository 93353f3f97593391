package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
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
	// agreed is the latest time that had passed by the clocks of both, the host
	// and a server, when those were not far apart.
	agreed time.Time
	// distrusted is the clock that is known to be too far ahead. Until a server's
	// answer confirms it, that is open, and confirmed is what was known before.
	distrusted, confirmed distrusted
	open                  bool
}

type distrusted int

const (
	nobody distrusted = iota
	theHost
	theServers
)

// agreement is how far two clocks that agree may be apart: little for
// certificates, which live for months, and enough for a clock that was set in
// another time zone.
const agreement = 24 * time.Hour

// time is the time at which certificates are verified.
func (r *reckoning) time() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(r.now())
}

// at is the time that it is when the host's clock says now.
func (r *reckoning) at(now time.Time) time.Time {
	switch {
	case r.distrusted == theHost:
		return r.known(now)
	case r.distrusted == theServers && r.credible(now):
		return now
	}
	return latest(r.known(now), now)
}

// known is the time that it is at least, whatever the host's clock says.
func (r *reckoning) known(now time.Time) time.Time {
	return latest(latest(r.built, r.agreed), r.servers(now))
}

// credible reports whether the host's clock may be right where a server's said
// more. One that never was right, or that was put back to before it last was,
// would make certificates good that have long expired, and keys of theirs that
// were stolen.
func (r *reckoning) credible(now time.Time) bool {
	return !r.agreed.IsZero() && !now.Before(latest(r.built, r.agreed))
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

// sawServerTime learns the time that the server told in an answer.
func (r *reckoning) sawServerTime(at time.Time, answer *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
	if at.After(answer.TLS.PeerCertificates[0].NotAfter) {
		// A server renews its certificate in time: its clock is wrong, or was.
		return
	}
	now := r.now()
	if at.Sub(now).Abs() <= agreement {
		// Without its monotonic part, by which no clock is ever put back.
		r.agreed = latest(r.agreed, earliest(at, now.Round(0)))
	}
	if r.distrusted == theServers {
		r.told, r.heard, r.distrusted = at, now, nobody
		return
	}
	// What an earlier run was told may be later; the time goes on from there, and
	// not by the host's clock.
	if at.After(r.told) || r.heard.IsZero() {
		r.told, r.heard = latest(at, r.told), now
	}
}

// doubt makes the host's clock, or else what servers told, count no longer, if
// the certificate that an error says has expired is good without. Of several
// requests that ask at once, those that come later find it good. Nobody has
// verified more of that certificate than its dates by then, so settle is to follow
// when it was asked again.
func (r *reckoning) doubt(err error) bool {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, now := r.distrusted, r.now()
	switch {
	case isGood(invalid.Cert, r.at(now)):
	case isGood(invalid.Cert, r.known(now)) && !r.told.IsZero():
		r.distrusted = theHost
	case isGood(invalid.Cert, now) && r.credible(now):
		r.distrusted = theServers
	default:
		return false
	}
	if !r.open && r.distrusted != before {
		r.confirmed, r.open = before, true
	}
	return true
}

func isGood(certificate *x509.Certificate, at time.Time) bool {
	return !at.Before(certificate.NotBefore) && !at.After(certificate.NotAfter)
}

// settle takes a doubt back that no server has confirmed by an answer.
func (r *reckoning) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		r.distrusted, r.open = r.confirmed, false
	}
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

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
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

package client

import (
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"time"
)

// clockEstimate estimates the time from the host's clock and from what servers reported.
type clockEstimate struct {
	now   func() time.Time
	built time.Time

	mu sync.Mutex
	// serverTime is the latest time that a server reported; heardAt is the host's time
	// then, on the monotonic clock.
	serverTime, heardAt time.Time
	// agreed is the latest time that had passed by the clocks of both the host and a
	// server, when those differed by at most agreement.
	agreed time.Time
	// distrusted is the clock that is too far ahead. While unconfirmed is true, no
	// server has confirmed that by an answer, and confirmed is the former value.
	distrusted, confirmed distrustedClock
	unconfirmed           bool
}

// distrustedClock is a clock that clockEstimate ignores.
type distrustedClock int

const (
	noClock distrustedClock = iota
	hostClock
	serverClock
)

// agreement is how much two clocks that agree may differ: little for certificates,
// which are valid for months, and enough for a clock set in another time zone.
const agreement = 24 * time.Hour

// time is the time at which certificates are verified.
func (e *clockEstimate) time() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at(e.now())
}

// at estimates the time when the host's clock shows now.
func (e *clockEstimate) at(now time.Time) time.Time {
	switch {
	case e.distrusted == hostClock:
		return e.known(now)
	case e.distrusted == serverClock && e.credible(now):
		return now
	}
	return latest(e.known(now), now)
}

// known is the earliest time that it can be, whatever the host's clock shows.
func (e *clockEstimate) known(now time.Time) time.Time {
	return latest(latest(e.built, e.agreed), e.servers(now))
}

// credible reports whether the host's clock may be right although a server reported a
// later time. A clock that never agreed with a server's, or that was set back to before
// it last agreed, would make expired certificates valid, and their stolen keys.
func (e *clockEstimate) credible(now time.Time) bool {
	return !e.agreed.IsZero() && !now.Before(latest(e.built, e.agreed))
}

// servers estimates the servers' time; zero if no server has reported one.
func (e *clockEstimate) servers(now time.Time) time.Time {
	if e.serverTime.IsZero() || e.heardAt.IsZero() {
		return e.serverTime
	}
	// Sub uses the monotonic clock, which setting the host's clock does not change.
	return e.serverTime.Add(max(now.Sub(e.heardAt), 0))
}

// recordServerTime records the time that a server reported in an answer.
func (e *clockEstimate) recordServerTime(at time.Time, answer *http.Response) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unconfirmed = false
	if at.After(answer.TLS.PeerCertificates[0].NotAfter) {
		// A server renews its certificate before it expires, so its clock is wrong.
		return
	}
	now := e.now()
	if at.Sub(now).Abs() <= agreement {
		// Round drops the monotonic clock, which never goes back.
		e.agreed = latest(e.agreed, earliest(at, now.Round(0)))
	}
	if e.distrusted == serverClock {
		e.serverTime, e.heardAt, e.distrusted = at, now, noClock
		return
	}
	// An earlier run may have recorded a later time. The estimate continues from there,
	// not from the host's clock.
	if at.After(e.serverTime) || e.heardAt.IsZero() {
		e.serverTime, e.heardAt = latest(at, e.serverTime), now
	}
}

// distrustClock handles the error of a certificate that is not valid at the estimated
// time. It distrusts the host's clock, or else the servers' time, if the certificate is
// valid without. It returns true if the request must be repeated. Of concurrent requests,
// the later ones find the certificate valid. Only the dates of the certificate were
// verified so far, so revertUnconfirmed must follow the repeated request.
func (e *clockEstimate) distrustClock(err error) bool {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before, now := e.distrusted, e.now()
	switch {
	case isValidAt(invalid.Cert, e.at(now)):
	case isValidAt(invalid.Cert, e.known(now)) && !e.serverTime.IsZero():
		e.distrusted = hostClock
	case isValidAt(invalid.Cert, now) && e.credible(now):
		e.distrusted = serverClock
	default:
		return false
	}
	if !e.unconfirmed && e.distrusted != before {
		e.confirmed, e.unconfirmed = before, true
	}
	return true
}

func isValidAt(certificate *x509.Certificate, at time.Time) bool {
	return !at.Before(certificate.NotBefore) && !at.After(certificate.NotAfter)
}

// revertUnconfirmed trusts a clock again if no server has confirmed the distrust by an
// answer.
func (e *clockEstimate) revertUnconfirmed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unconfirmed {
		e.distrusted, e.unconfirmed = e.confirmed, false
	}
}

// isExpired reports whether err is a certificate that is not valid at the estimated time.
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

package problem

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Blank is the type of problems that an agent does not handle specially.
const Blank = "about:blank"

// maxDrainDelay spreads the reconnections of all hosts after the manager stops.
const maxDrainDelay = 5 * time.Second

// Error is an error that is sent to the caller. Its text is constant for its
// kind, so that an answer reveals no more than the caller may know.
type Error struct {
	protocol.Problem
	// RetryAfter is sent in the header of that name, unless it is 0.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Title }

// New returns a problem without a Retry-After header.
func New(status int, kind, title string) *Error {
	return &Error{Problem: protocol.Problem{Type: kind, Title: title, Status: status}}
}

// UnknownHost is returned for a key that belongs to no host.
func UnknownHost() *Error {
	return New(http.StatusUnauthorized, protocol.ProblemUnknownHost, "This key is not known here")
}

// Revoked is returned to a rejected host.
func Revoked() *Error {
	return New(http.StatusForbidden, protocol.ProblemRevoked, "The host is rejected")
}

// Locked is returned to a host whose key is used by two machines.
func Locked() *Error {
	return New(http.StatusForbidden, protocol.ProblemLocked, "Two machines use this identity; an administrator has to decide")
}

// Fenced is returned to a fenced host for everything but its reset.
func Fenced() *Error {
	return New(http.StatusForbidden, Blank, "The host is fenced; it may only be reset")
}

// TokenRefused is returned for every token that can't be used, whatever the reason.
func TokenRefused() *Error {
	return New(http.StatusForbidden, protocol.ProblemTokenRefused, "The registration token is unknown, expired or used up")
}

// NoSnapshotToFetch is the answer to a host that is to download no snapshot, or another one.
func NoSnapshotToFetch() *Error {
	return New(http.StatusNotFound, Blank, "The host is to download no such snapshot")
}

// NoStorage is the answer to a host that has no storage to reach through the manager.
func NoStorage() *Error {
	return New(http.StatusNotFound, Blank, "The host is to reach no storage through the manager")
}

// NoControlPlaneToSetUp is the answer to a host that is to set up no control plane again.
func NoControlPlaneToSetUp() *Error {
	return New(http.StatusNotFound, Blank, "The host is to set up no control plane")
}

// NoOperation is returned for an operation that the host is not to run.
func NoOperation(status int) *Error {
	return New(status, protocol.ProblemNoOperation, "The host has no such operation")
}

// StaleGeneration is returned for a former key, or a rotation that counts from a
// former one.
func StaleGeneration() *Error {
	return New(http.StatusConflict, protocol.ProblemStaleGeneration, "Another copy of this identity has changed the key")
}

// BadRequest is returned for an invalid HTTP request. The reason is sent to the caller.
func BadRequest(reason string) *Error {
	return New(http.StatusBadRequest, Blank, reason)
}

// NotFound is returned for an unlisted route.
func NotFound() *Error {
	return New(http.StatusNotFound, Blank, "There is no such route")
}

// TooManyRequests tells the caller to retry after a time.
func TooManyRequests(after time.Duration) *Error {
	e := New(http.StatusTooManyRequests, Blank, "Too many requests")
	e.RetryAfter = after
	return e
}

// Busy tells the caller to retry after a time.
func Busy(after time.Duration) *Error {
	e := New(http.StatusServiceUnavailable, Blank, "Try again later")
	e.RetryAfter = after
	return e
}

// Draining tells the caller to retry with the next leader, after a random delay
// that keeps all hosts from reconnecting at once.
func Draining() *Error {
	return Busy(time.Second + rand.N(maxDrainDelay)) //nolint:gosec // no secret
}

// Write answers an HTTP request with the problem.
func (e *Error) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(e.Status)
	// An error here means that the caller has disconnected.
	_ = json.NewEncoder(w).Encode(e.Problem)
}

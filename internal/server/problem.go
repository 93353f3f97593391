package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// problemError is an error that the caller is told. Its text is constant for its
// kind: an answer never says more than the caller may know.
type problemError struct {
	protocol.Problem
	retryAfter time.Duration
}

// Error implements error.
func (p *problemError) Error() string { return p.Title }

func problem(status int, kind, title string) *problemError {
	return &problemError{Problem: protocol.Problem{Type: kind, Title: title, Status: status}}
}

// blank is the type of problems that an agent can do nothing particular about.
const blank = "about:blank"

func errUnknownHost() error {
	return problem(http.StatusUnauthorized, protocol.ProblemUnknownHost, "This key is not known here")
}

func errRevoked() error {
	return problem(http.StatusForbidden, protocol.ProblemRevoked, "The host was shut out")
}

func errLocked() error {
	return problem(http.StatusForbidden, protocol.ProblemLocked, "Two machines use this identity; an administrator has to decide")
}

func errFenced() error {
	return problem(http.StatusForbidden, blank, "The host was given up; it may only be reset")
}

func errTokenRefused() error {
	return problem(http.StatusForbidden, protocol.ProblemTokenRefused, "The registration token is unknown, expired or used up")
}

func errNoOperation(status int) error {
	return problem(status, protocol.ProblemNoOperation, "The host has no such operation")
}

func errStaleGeneration() error {
	return problem(http.StatusConflict, protocol.ProblemStaleGeneration, "Another copy of this identity has changed the key")
}

func errBadRequest(why string) error {
	return problem(http.StatusBadRequest, blank, why)
}

func errNotFound() error {
	return problem(http.StatusNotFound, blank, "There is no such route")
}

func errTooMany(after time.Duration) error {
	p := problem(http.StatusTooManyRequests, blank, "Too many requests")
	p.retryAfter = after
	return p
}

func errBusy(after time.Duration) error {
	p := problem(http.StatusServiceUnavailable, blank, "Try again later")
	p.retryAfter = after
	return p
}

// write answers with the problem.
func (p *problemError) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	// A caller that has gone away needs no answer.
	_ = json.NewEncoder(w).Encode(p.Problem)
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// A caller that has gone away needs no answer.
	_ = json.NewEncoder(w).Encode(value)
	return nil
}

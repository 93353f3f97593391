package agent

import (
	"errors"
	"time"
)

// Connection is how the agent stands with its manager; for people.
type Connection struct {
	// State is Connected, Pending (waiting for approval), Unknown, Revoked or
	// Disconnected.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Error says why the host is not connected.
	Error string `json:"error,omitempty"`
	// ClockSkew is how far the host's clock is ahead of the manager's.
	ClockSkew string `json:"clockSkew,omitempty"`
}

// States of a Connection.
const (
	Connected    = "Connected"
	Pending      = "Pending"
	Unknown      = "Unknown"
	Revoked      = "Revoked"
	Disconnected = "Disconnected"
)

// stateError is a failure to remember something, after which the agent doesn't
// go on.
type stateError struct{ err error }

func (e *stateError) Error() string { return e.err.Error() }

func (e *stateError) Unwrap() error { return e.err }

func isStateError(err error) bool {
	var failure *stateError
	return errors.As(err, &failure)
}

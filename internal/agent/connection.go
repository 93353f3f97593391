package agent

import (
	"errors"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// Connection is how the agent stands with its manager; for people.
type Connection struct {
	// State is Connected, Pending (waiting for approval), Unknown, Revoked, Locked
	// (another machine has the same key) or Disconnected.
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
	Locked       = "Locked"
	Disconnected = "Disconnected"
)

// isStateError reports whether the agent could not remember something, after
// which it doesn't go on.
func isStateError(err error) bool {
	var failure *state.WriteError
	return errors.As(err, &failure)
}

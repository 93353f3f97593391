package connection

import (
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Status is the state of the connection, as people see it.
type Status struct {
	// State is Connected, Pending (waiting for approval), Unknown, Revoked, Locked
	// (two machines use the same key) or Disconnected.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Error explains why the host is not connected.
	Error string `json:"error,omitempty"`
	// ClockSkew is how far the host's clock is ahead of the manager's.
	ClockSkew string `json:"clockSkew,omitempty"`
}

// Values of Status.State.
const (
	Connected    = "Connected"
	Pending      = "Pending"
	Unknown      = "Unknown"
	Revoked      = "Revoked"
	Locked       = "Locked"
	Disconnected = "Disconnected"
)

// StateAfter returns the Status.State that the error of a call means.
func StateAfter(err error) string {
	switch {
	case client.IsProblem(err, protocol.ProblemLocked), client.IsProblem(err, protocol.ProblemStaleGeneration):
		return Locked
	case client.IsProblem(err, protocol.ProblemRevoked):
		return Revoked
	case client.IsProblem(err, protocol.ProblemUnknownHost):
		return Unknown
	}
	return Disconnected
}

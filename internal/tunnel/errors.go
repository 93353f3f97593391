package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Errors of Session.Dial, of its connections and of a Dialer. Test for them with
// errors.Is.
var (
	// ErrForbidden says that the agent has no such target.
	ErrForbidden = errors.New("target is forbidden")
	// ErrRefused says that the target's host answered, but not the target.
	ErrRefused = errors.New("target refused the connection")
	// ErrFiltered says that nothing answered in time.
	ErrFiltered = errors.New("target did not answer")
	// ErrTooManyStreams says that the tunnel has as many streams as it may have.
	ErrTooManyStreams = errors.New("too many streams")
	// ErrReset says that the stream ended without an orderly end of its data.
	ErrReset = errors.New("stream was reset")
	// ErrClosed says that the tunnel has ended, and all its streams with it.
	ErrClosed = errors.New("tunnel is closed")
	// ErrUnresponsive says that the tunnel was ended because the agent did not answer.
	// Such an error is an ErrClosed too.
	ErrUnresponsive = errors.New("agent does not answer")
	// ErrAbsent says that a host has no tunnel.
	ErrAbsent = errors.New("host has no tunnel")
)

// statusOf returns the agent's answer to a dial that failed.
func statusOf(err error) int {
	var network net.Error
	switch {
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, ErrTooManyStreams):
		return http.StatusServiceUnavailable
	case errors.Is(err, ErrFiltered), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return http.StatusGatewayTimeout
	default:
		return http.StatusBadGateway
	}
}

// errorOf returns the error for an agent's answer, and nil for the one to a dial that
// succeeded.
func errorOf(status int) error {
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusForbidden:
		return ErrForbidden
	case http.StatusBadGateway:
		return ErrRefused
	case http.StatusGatewayTimeout:
		return ErrFiltered
	case http.StatusServiceUnavailable:
		return ErrTooManyStreams
	default:
		return fmt.Errorf("%w: agent answered %d", ErrReset, status)
	}
}

package passthrough

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// outcome says whether a connection was routed, or why not. It is a label of a metric.
type outcome string

const (
	routed outcome = "routed"

	// No TLS, or an invalid ClientHello.
	notTLS outcome = "not_tls"
	// The ClientHello is longer than maxHello.
	tooLong outcome = "too_long"
	// The ClientHello was not complete in time.
	tooSlow outcome = "too_slow"
	// The caller ended the connection before its ClientHello was complete.
	incomplete outcome = "incomplete"
	// The ClientHello has no server name.
	noServerName outcome = "no_server_name"

	// The router had no connection in time.
	dialTimeout outcome = "dial_timeout"
	// The router's error is in no class of Options.DialErrors.
	dialFailed outcome = "dial_failed"

	// All connections together, or those of the source, have reached a limit.
	tooMany outcome = "too_many"
	// A connection of a source that has fewer took the place.
	displaced outcome = "displaced"
	// The server stops.
	draining outcome = "draining"
)

// outcomes returns those that don't depend on the router.
func outcomes() []outcome {
	return []outcome{
		routed, notTLS, tooLong, tooSlow, incomplete, noServerName, dialTimeout, dialFailed, tooMany, displaced, draining,
	}
}

// refusal is the error of a connection that is not routed.
type refusal struct {
	outcome outcome
	cause   error
}

// Error implements error.
func (r *refusal) Error() string {
	if r.cause == nil {
		return string(r.outcome)
	}
	return string(r.outcome) + ": " + r.cause.Error()
}

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.cause }

// outcomeOf returns the outcome of a connection for which routing ended with err.
func outcomeOf(err error) outcome {
	if err == nil {
		return routed
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.outcome
	}
	return dialFailed
}

// refuseHello classifies the error of reading a ClientHello.
func refuseHello(err error) error {
	switch {
	case errors.Is(err, errTooLong):
		return &refusal{tooLong, err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{tooSlow, err}
	case errors.Is(err, errReading):
		return &refusal{incomplete, err}
	default:
		return &refusal{notTLS, err}
	}
}

// dialErrors classifies the errors of the router, in the order of the outcomes' names.
type dialErrors []refusal

func newDialErrors(byOutcome map[string]error) (dialErrors, error) {
	var d dialErrors
	for _, name := range slices.Sorted(maps.Keys(byOutcome)) {
		if name == "" || slices.Contains(outcomes(), outcome(name)) {
			return nil, fmt.Errorf("outcome %q of dial errors is empty or has another meaning", name)
		}
		d = append(d, refusal{outcome(name), byOutcome[name]})
	}
	return d, nil
}

// refuse classifies an error of the router. The cause of the end of the dial's context, if
// it has ended, is why the connection is not routed.
func (d dialErrors) refuse(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, class := range d {
		if errors.Is(err, class.cause) {
			return &refusal{class.outcome, err}
		}
	}
	return &refusal{dialFailed, err}
}

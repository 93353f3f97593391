package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxProblemBytes bounds an error's body.
const maxProblemBytes = 16 << 10

// maxRetryAfter limits a server's Retry-After.
const maxRetryAfter = 10 * time.Minute

// ProblemError is a refusal by a server that was reached and authenticated.
type ProblemError struct {
	Server  string
	Problem protocol.Problem
	// RetryAfter is the server's Retry-After, or 0.
	RetryAfter time.Duration
}

func (e *ProblemError) Error() string {
	text := fmt.Sprintf("%s refuses: %s (HTTP %d)", e.Server, e.Problem.Title, e.Problem.Status)
	if e.Problem.Detail != "" {
		text += ": " + e.Problem.Detail
	}
	if advice := advice(e.Problem.Type); advice != "" {
		text += ": " + advice
	}
	return text
}

func advice(problem string) string {
	switch problem {
	case protocol.ProblemUnknownHost:
		return "the manager doesn't know this host's key; the host keeps it, changes nothing and tries again"
	case protocol.ProblemRevoked:
		return "an administrator has rejected this host; to use it again, enrol it with a new token"
	case protocol.ProblemTokenRefused:
		return "put a valid registration token into the agent's configuration"
	case protocol.ProblemStaleGeneration, protocol.ProblemLocked:
		return "a copy of this host's state is in use elsewhere; the host keeps its key, and an administrator has to decide which one stays"
	}
	return ""
}

// IsProblem reports whether err is a server's refusal of the given type.
func IsProblem(err error, problem string) bool {
	var refusal *ProblemError
	return errors.As(err, &refusal) && refusal.Problem.Type == problem
}

// RetryAfter is the Retry-After of a server's refusal, or 0.
func RetryAfter(err error) time.Duration {
	if refusal, ok := errors.AsType[*ProblemError](err); ok {
		return refusal.RetryAfter
	}
	return 0
}

// Unreachable reports whether no connection to any server was made: the host has no
// network, or no server listens. It is false for a server that is not trusted.
func Unreachable(err error) bool {
	var several serverErrors
	if !errors.As(err, &several) {
		return isUnreachable(err)
	}
	for _, err := range several {
		if !isUnreachable(err) {
			return false
		}
	}
	return true
}

func isUnreachable(err error) bool {
	var operation *net.OpError
	if !errors.As(err, &operation) {
		return false
	}
	return operation.Op == "dial" || operation.Op == "proxyconnect" && isUnreachable(operation.Err)
}

// Unavailable reports whether a server answered that it is unavailable (RFC 9110, section
// 15.6.4). RetryAfter is then an estimate of the server, not a limit that the caller has
// exceeded.
func Unavailable(err error) bool {
	refusal, ok := errors.AsType[*ProblemError](err)
	return ok && refusal.Problem.Status == http.StatusServiceUnavailable
}

// isWorthRetryingElsewhere reports whether another server may answer better.
func (e *ProblemError) isWorthRetryingElsewhere() bool {
	status := e.Problem.Status
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		e.Problem.Type == protocol.ProblemUnknownHost
}

func readProblem(server string, response *http.Response, now time.Time) error {
	refusal := &ProblemError{Server: server, RetryAfter: parseRetryAfter(response.Header.Get("Retry-After"), now)}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProblemBytes))
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || media != "application/problem+json" || json.Unmarshal(body, &refusal.Problem) != nil {
		refusal.Problem = protocol.Problem{Type: "about:blank"}
	}
	refusal.Problem.Status = response.StatusCode
	refusal.Problem.Title = printable(refusal.Problem.Title)
	refusal.Problem.Detail = printable(refusal.Problem.Detail)
	if refusal.Problem.Title == "" {
		refusal.Problem.Title = http.StatusText(response.StatusCode)
	}
	return refusal
}

// printable makes a server's text fit for one line of a log.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	return text
}

func parseRetryAfter(value string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// serverErrors are the answers of several servers, on one line.
type serverErrors []error

func joined(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	return serverErrors(failures)
}

func (e serverErrors) Error() string {
	texts := make([]string, 0, len(e))
	for _, err := range e {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns refusals first: they say more than failures to connect.
func (e serverErrors) Unwrap() []error {
	var refusals, others []error
	for _, err := range e {
		if _, ok := errors.AsType[*ProblemError](err); ok {
			refusals = append(refusals, err)
		} else {
			others = append(others, err)
		}
	}
	return append(refusals, others...)
}

// IsProblemEverywhere reports whether every server refused with the given type. It is
// false if a server could not be reached, as that server might answer otherwise.
func IsProblemEverywhere(err error, problem string) bool {
	var several serverErrors
	if !errors.As(err, &several) {
		return IsProblem(err, problem)
	}
	for _, err := range several {
		if !IsProblem(err, problem) {
			return false
		}
	}
	return true
}

// IsInvited reports whether a server asks the host to enrol again, because an administrator has declared
// this machine for a host.
func IsInvited(err error) bool {
	return anyRefusal(err, func(p protocol.Problem) bool { return p.Type == protocol.ProblemUnknownHost && p.Enrol })
}

// IsAnswered reports whether a server that is a manager of the host has answered, with whatever
// refusal: any but that it does not know the host.
func IsAnswered(err error) bool {
	return anyRefusal(err, func(p protocol.Problem) bool { return p.Type != protocol.ProblemUnknownHost })
}

// anyRefusal reports whether a server has refused with a matching problem.
func anyRefusal(err error, matches func(protocol.Problem) bool) bool {
	var several serverErrors
	if !errors.As(err, &several) {
		several = serverErrors{err}
	}
	for _, err := range several {
		if refusal, ok := errors.AsType[*ProblemError](err); ok && matches(refusal.Problem) {
			return true
		}
	}
	return false
}

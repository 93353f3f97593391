package probe

import (
	"fmt"
	"time"
)

// Result is the result of probing a server.
type Result string

// Results of probing a server.
const (
	// Unknown means that too few probes were made, or that the host could not make
	// them.
	Unknown Result = ""
	Answers Result = "Answers"
	Fails   Result = "Fails"
)

// minProbes is how many probes in a row must end without an answer before the
// result changes.
const minProbes = 2

// ServerState is the probe state of one server.
type ServerState struct {
	Result Result
	// Since is when the first probe with this result began.
	Since time.Time
	// Message says why the server does not answer or could not be probed. It is
	// that of the probe that changed the result.
	Message string
	// Conclusive is false until enough probes were made.
	Conclusive bool
}

// outcome is the outcome of one probe.
type outcome struct {
	result  Result
	message string
}

func failed(err error) outcome { return outcome{Fails, err.Error()} }

func answered(status int) outcome {
	if isAnswer(status) {
		return outcome{result: Answers}
	}
	return outcome{Fails, fmt.Sprintf("/readyz says %d", status)}
}

// tracker derives the state of a server from the outcomes of its probes.
type tracker struct {
	state ServerState
	// last is the latest result. streak counts the probes in a row that had it, the
	// first of which began at since.
	last   Result
	streak int
	since  time.Time
	// probes counts all probes up to minProbes.
	probes int
}

// record adds the outcome of a probe that began at a time, and reports whether
// the state changed.
func (t *tracker) record(o outcome, began time.Time) (changed bool) {
	if t.streak == 0 || o.result != t.last {
		t.last, t.streak, t.since = o.result, 0, began
	}
	t.streak++
	t.probes = min(t.probes+1, minProbes)
	next := t.state
	next.Conclusive = next.Conclusive || t.probes >= minProbes
	if o.result != next.Result && (o.result == Answers || t.streak >= minProbes) {
		next = ServerState{Result: o.result, Since: t.since, Message: o.message, Conclusive: true}
	}
	if o.result == Unknown && next.Result == Unknown && next.Conclusive && next.Message == "" {
		next.Message = o.message
	}
	changed = next != t.state
	t.state = next
	return changed
}

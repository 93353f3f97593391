package probe

import (
	"fmt"
	"time"
)

// State is what is known of a server.
type State string

// States of a server.
const (
	// Unknown: it was not looked at often enough, or could not be.
	Unknown State = ""
	Answers State = "Answers"
	Fails   State = "Fails"
)

// enough is how many probes in a row have to end without an answer before that
// counts.
const enough = 2

// Verdict is what is known of one server.
type Verdict struct {
	State State
	// Since is when the first probe began that had this result.
	Since time.Time
	// Message says why it does not answer, or could not be looked at; that of the
	// probe that settled it.
	Message string
	// Settled is false while too few probes were made to tell.
	Settled bool
}

// outcome is how one probe ended.
type outcome struct {
	state   State
	message string
}

func fails(err error) outcome { return outcome{Fails, err.Error()} }

func answered(status int) outcome {
	if isAnswer(status) {
		return outcome{state: Answers}
	}
	return outcome{Fails, fmt.Sprintf("/readyz says %d", status)}
}

// track turns outcomes into a verdict.
type track struct {
	verdict Verdict
	// row are the outcomes like the last one, since then without a break.
	last  State
	row   int
	since time.Time
	// seen counts all, up to enough.
	seen int
}

// add takes the outcome of a probe that began at a time, and reports whether the
// verdict changed.
func (t *track) add(o outcome, began time.Time) (changed bool) {
	if t.row == 0 || o.state != t.last {
		t.last, t.row, t.since = o.state, 0, began
	}
	t.row++
	t.seen = min(t.seen+1, enough)
	next := t.verdict
	next.Settled = next.Settled || t.seen >= enough
	if o.state != next.State && (o.state == Answers || t.row >= enough) {
		next = Verdict{State: o.state, Since: t.since, Message: o.message, Settled: true}
	}
	if o.state == Unknown && next.State == Unknown && next.Settled && next.Message == "" {
		next.Message = o.message
	}
	changed = next != t.verdict
	t.verdict = next
	return changed
}

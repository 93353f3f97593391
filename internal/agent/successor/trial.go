// Package successor tries the successor of a management cluster before hosts need it, so that
// people know which hosts would stay behind.
package successor

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// MaxDelay is the longest delay between two trials, for Trial.Backoff.
const MaxDelay = 10 * time.Minute

// Spread is the time over which a fleet spreads its first trials, for Trial.Spread: each of them is
// a new connection for the successor.
const Spread = 10 * time.Second

// Trial finds out whether the host reaches its successor.
type Trial struct {
	// Successor returns what the plan desires, or nil.
	Successor func() *protocol.Successor
	// Try makes one attempt, such as connection.Manager.TrySuccessor.
	Try func(ctx context.Context, successor protocol.Successor) error
	// Report is called after each attempt, and when there is no successor any more.
	Report func(protocol.SuccessorReport)
	// Spread is the longest delay before the first trial.
	Spread  time.Duration
	Backoff *retry.Backoff
	Clock   retry.Clock
	Log     *slog.Logger
	// Wake is raised when the plan may have changed.
	Wake signal.Signal
}

// Run tries each new successor until it was reached, or until ctx ends.
func (t *Trial) Run(ctx context.Context) error {
	// known is what was reported last.
	var known protocol.SuccessorReport
	for ctx.Err() == nil {
		desired := t.Successor()
		switch {
		case desired == nil:
			if known.Digest != "" {
				known = protocol.SuccessorReport{}
				t.Report(known)
			}
			t.Wake.Wait(ctx)
			continue
		case known.Digest == desired.Digest() && known.Reached:
			t.Wake.Wait(ctx)
			continue
		case known.Digest != desired.Digest():
			t.Backoff.Reset()
			t.Wake.WaitFor(ctx, t.Clock, t.Backoff.Within(t.Spread))
		}
		known = t.attempt(ctx, *desired)
	}
	return nil
}

// attempt makes one attempt, and returns what it has reported. It waits after one that failed.
func (t *Trial) attempt(ctx context.Context, desired protocol.Successor) protocol.SuccessorReport {
	err := t.Try(ctx, desired)
	report := protocol.SuccessorReport{Digest: desired.Digest(), Reached: err == nil, Message: message(err)}
	if ctx.Err() != nil {
		return report // the agent is being stopped
	}
	t.Report(report)
	if err != nil {
		t.Log.Warn("Could not reach the successor of the management cluster", "servers", desired.Servers, "error", err)
		t.Wake.WaitFor(ctx, t.Clock, max(client.RetryAfter(err), t.Backoff.Next()))
	}
	return report
}

// message returns an error as a report may have it.
func message(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), protocol.MaxMessageBytes)], "")
}

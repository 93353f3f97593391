package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// followAfter is how long no manager must have answered before the host tries the successor.
	// A restart of the manager takes less.
	followAfter = 20 * time.Second
	// maxTrialDelay is the longest delay between two trials of a successor.
	maxTrialDelay = 10 * time.Minute
	// firstTrials is the time over which a fleet spreads its first trials.
	firstTrials = 10 * time.Second
)

// follow changes to another management cluster if the present one does not know the host, or if
// none of its managers has answered for followAfter. It returns only errors of the state
// directory.
func (p *poller) follow(ctx context.Context, cause error) (followed bool, err error) {
	isUnknown := client.IsProblemEverywhere(cause, protocol.ProblemUnknownHost)
	now := p.clock.Now()
	switch {
	case !p.store.Identity().Enrolled(), client.IsAnswered(cause):
		p.followAt = time.Time{}
		return false, nil
	case isUnknown:
	case p.followAt.IsZero():
		p.followAt = now.Add(followAfter)
		return false, nil
	case now.Before(p.followAt):
		return false, nil
	}
	p.followAt = now.Add(followAfter)
	followed, err = p.manager.Follow(ctx, isUnknown)
	if state.IsWriteError(err) {
		return false, err
	}
	if err != nil {
		p.log.Info("Does not follow to another management cluster", "error", err)
	}
	return followed, nil
}

// successorTrial finds out whether the host reaches the successor that the plan names, so that
// people know it before they move.
type successorTrial struct {
	manager  *connection.Manager
	facts    *facts
	reporter *reporter
	backoff  *retry.Backoff
	clock    retry.Clock
	log      *slog.Logger
	// wake is raised when the plan may have changed.
	wake signal.Signal
}

// run tries each new successor until it was reached, or until ctx ends.
func (t *successorTrial) run(ctx context.Context) error {
	for ctx.Err() == nil {
		desired := t.manager.Successor()
		known := t.facts.current().successor
		switch {
		case desired == nil:
			if known != nil && known.Digest != "" {
				t.report(&protocol.SuccessorReport{})
			}
			t.wake.Wait(ctx)
		case known != nil && known.Digest == desired.Digest() && known.Reached:
			t.wake.Wait(ctx)
		default:
			t.try(ctx, *desired, known)
		}
	}
	return nil
}

func (t *successorTrial) try(ctx context.Context, desired protocol.Successor, known *protocol.SuccessorReport) {
	if known == nil || known.Digest != desired.Digest() {
		t.backoff.Reset()
		t.wake.WaitFor(ctx, t.clock, t.backoff.Within(firstTrials))
	}
	err := t.manager.TrySuccessor(ctx, desired)
	if ctx.Err() != nil {
		return
	}
	report := &protocol.SuccessorReport{Digest: desired.Digest(), Reached: err == nil}
	if err != nil {
		report.Message = truncate(err.Error(), protocol.MaxMessageBytes)
		t.log.Warn("Could not reach the successor of the management cluster", "servers", desired.Servers, "error", err)
	}
	t.report(report)
	if err != nil {
		t.wake.WaitFor(ctx, t.clock, max(client.RetryAfter(err), t.backoff.Next()))
	}
}

func (t *successorTrial) report(report *protocol.SuccessorReport) {
	t.facts.update(func(o *observation) { o.successor = report })
	t.reporter.wake.Raise()
}

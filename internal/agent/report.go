package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/progress"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxResults bounds the results in one report.
const maxResults = 6

// reporter sends facts, progress and results until the manager acknowledges them.
type reporter struct {
	store   *state.Store
	manager *connection.Manager
	facts   *facts
	running *progress.Progress
	updater Updater
	hello   func() protocol.Hello
	clock   retry.Clock
	random  func() float64
	log     *slog.Logger
	// wake is raised when there may be something to report.
	wake signal.Signal

	mu sync.Mutex
	// round counts the calls of startOver.
	round int
	// withheld is the operation whose result waits for an observation of the host.
	withheld state.Operation
	// repeats are acknowledged results that the manager asks for again.
	repeats []state.Operation
	// reportedUpdate is the last AgentUpdate that the manager has acknowledged.
	reportedUpdate *protocol.AgentUpdate
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	delays := connection.NewDelays(r.random)
	// An outage is logged once.
	failing := false
	for ctx.Err() == nil {
		began := r.clock.Now()
		sent, err := r.reportOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent is being stopped
		case state.IsWriteError(err):
			return err
		case err != nil:
			level := slog.LevelWarn
			if failing {
				level = slog.LevelDebug
			}
			failing = true
			r.log.Log(ctx, level, "Could not report; will retry", "error", err)
			wake := r.wake // the poller raises it when it has reconnected
			if !client.Unreachable(err) {
				wake = nil
			}
			wake.WaitFor(ctx, r.clock, delays.AfterError(err, r.clock.Now().Sub(began)))
		case sent:
			delays.Reset()
			failing = false
		default:
			r.wake.Wait(ctx)
		}
	}
	return nil
}

// reportOnce sends one report if there is anything to report.
func (r *reporter) reportOnce(ctx context.Context) (isSent bool, err error) {
	if !r.store.Identity().Enrolled() {
		return false, nil
	}
	round := r.currentRound()
	var report protocol.Report
	// A result is older than the facts that are reported with it.
	results, repeats := r.results()
	observed, sent := r.facts.addChanges(&report, r.clock.Now())
	if sent.hello {
		hello := r.hello()
		report.Hello = &hello
	}
	report.AgentUpdate = r.unreportedUpdate(sent.hello)
	hasFacts := !reflect.DeepEqual(report, protocol.Report{})
	for _, op := range slices.Concat(results, repeats) {
		report.Operations = append(report.Operations, op.Report())
	}
	running, hasStep := r.running.Take()
	if hasStep {
		report.Operations = append(report.Operations, running)
	}
	if !hasFacts && len(report.Operations) == 0 {
		return false, nil
	}
	err = r.send(ctx, report, hasFacts, hasStep)
	switch {
	case client.IsProblem(err, protocol.ProblemNoOperation) && len(report.Operations) > 0:
		return true, r.reportEach(ctx, round, results, repeats)
	case err != nil && hasFacts && isRejected(err):
		// Without the facts the results can still be reported.
		r.log.Error("The manager rejects the facts about this host", "error", err)
		r.setReported(round, observed, sent, report.AgentUpdate)
		return false, err
	case err != nil:
		return false, err
	}
	r.setReported(round, observed, sent, report.AgentUpdate)
	return true, r.acknowledge(round, results, len(repeats))
}

// send sends a report. If that fails, the step in it becomes due again, unless the manager
// has refused it.
func (r *reporter) send(ctx context.Context, report protocol.Report, hasFacts, hasStep bool) error {
	err := r.manager.Client().Report(ctx, report)
	if hasStep && err != nil && !isStepRefused(err, hasFacts, len(report.Operations) > 1) {
		r.running.Repeat()
	}
	return err
}

// startOver makes the host report everything again, because the manager that answers now
// may have been told nothing.
func (r *reporter) startOver() {
	r.mu.Lock()
	r.round++
	r.facts.resetReported()
	r.running.Repeat()
	r.mu.Unlock()
	r.wake.Raise()
}

func (r *reporter) currentRound() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.round
}

// setReported records which facts a manager has acknowledged. It does nothing if reporting
// has started over since the given round: another manager may have acknowledged them.
func (r *reporter) setReported(round int, observed observation, sent parts, update *protocol.AgentUpdate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.round != round {
		return
	}
	r.facts.setReported(observed, sent)
	if update != nil {
		r.reportedUpdate = update
	}
}

// acknowledge records that a manager has acknowledged results and the first of the
// repeats. It does nothing if reporting has started over since the given round.
func (r *reporter) acknowledge(round int, results []state.Operation, repeats int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.round != round {
		return nil
	}
	for _, op := range results {
		if err := r.store.Acknowledge(op); err != nil {
			return err
		}
	}
	r.repeats = r.repeats[repeats:]
	return nil
}

// reportEach reports results one by one, because the manager no longer asks for one of
// them: another Machine claimed the host while it was disconnected. Such a result is
// dropped, so that it does not block the others. If the manager asks again, a plan says
// so.
func (r *reporter) reportEach(ctx context.Context, round int, results, repeats []state.Operation) error {
	for i, op := range slices.Concat(results, repeats) {
		err := r.manager.Client().Report(ctx, protocol.Report{Operations: []protocol.OperationReport{op.Report()}})
		if client.IsProblem(err, protocol.ProblemNoOperation) {
			r.log.Info("The manager no longer asks about an operation", "operation", op.Type, "id", op.ID, "state", op.State)
		} else if err != nil {
			return err
		}
		if i < len(results) {
			err = r.acknowledge(round, []state.Operation{op}, 0)
		} else {
			err = r.acknowledge(round, nil, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withhold keeps the result of an operation back until release is called.
func (r *reporter) withhold(op state.Operation) (release func()) {
	set := func(op state.Operation) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.withheld = op
	}
	set(op)
	return func() {
		set(state.Operation{})
		r.wake.Raise()
	}
}

// results returns unacknowledged results and results to repeat, at most maxResults in
// total.
func (r *reporter) results() (results, repeats []state.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range r.store.Operations() {
		isWithheld := op.Type == r.withheld.Type && op.ID == r.withheld.ID
		if op.Reportable() && !isWithheld && len(results) < maxResults {
			results = append(results, op)
		}
	}
	return results, slices.Clone(r.repeats[:min(len(r.repeats), maxResults-len(results))])
}

// repeatResult reports an acknowledged result again: the manager lost it, as after a
// restore from a backup.
func (r *reporter) repeatResult(op state.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pending := range r.repeats {
		if pending.Type == op.Type && pending.ID == op.ID {
			return
		}
	}
	r.repeats = append(r.repeats, op)
	r.wake.Raise()
}

// unreportedUpdate returns the state of the agent's update to send, or nil without an
// update or if that state was reported. With repeat, it returns a reported state too.
func (r *reporter) unreportedUpdate(repeat bool) *protocol.AgentUpdate {
	if r.updater == nil {
		return nil
	}
	current := r.updater.Report()
	if current == nil {
		return nil
	}
	update := *current
	update.Message = truncate(update.Message, protocol.MaxMessageBytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !repeat && r.reportedUpdate != nil && *r.reportedUpdate == update {
		return nil
	}
	// Unless this report is acknowledged, the manager may know this state or the former one.
	r.reportedUpdate = nil
	return &update
}

// isStepRefused reports whether err, the answer to a report of the running step, is about
// that step: the report had nothing else that the manager may have refused. A step that
// was refused is not reported again.
func isStepRefused(err error, hasFacts, hasResults bool) bool {
	if client.IsProblem(err, protocol.ProblemNoOperation) {
		return !hasResults
	}
	return isRejected(err) && !hasFacts && !hasResults
}

// isRejected reports whether the manager will reject the same report again.
func isRejected(err error) bool {
	refusal, ok := errors.AsType[*client.ProblemError](err)
	if !ok {
		return false
	}
	switch refusal.Problem.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// truncate shortens a message to at most limit bytes.
func truncate(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(message[:limit-len(ellipsis)], "") + ellipsis
}

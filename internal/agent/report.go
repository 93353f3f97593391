package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// progress is how far the running operation is.
type progress struct {
	mu   sync.Mutex
	op   state.Operation
	step string
	// due is true when the step is to be reported.
	due bool
	// told is the step that was reported last.
	told string
}

func (p *progress) begin(op state.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op, p.step, p.told, p.due = op, "", "", false
}

func (p *progress) end() { p.begin(state.Operation{}) }

func (p *progress) at(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = step
}

// tick makes the current step due unless it was reported already.
func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = p.op.ID != "" && p.step != p.told
}

// take returns the report that is due.
func (p *progress) take() (protocol.OperationReport, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.due {
		return protocol.OperationReport{}, false
	}
	p.due, p.told = false, p.step
	return protocol.OperationReport{
		Type: p.op.Type, ID: p.op.ID, State: protocol.StateRunning, Step: p.step, StartedAt: &p.op.StartedAt,
	}, true
}

// tell sends facts and results until they are acknowledged.
func (a *Agent) tell(ctx context.Context) error {
	wait := a.newWaits()
	// One line in the log is enough for one outage.
	failing := false
	for ctx.Err() == nil {
		began := a.Clock.Now()
		sent, err := a.tellOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent is being stopped
		case isStateError(err):
			return err
		case err != nil:
			level := slog.LevelWarn
			if failing {
				level = slog.LevelDebug
			}
			failing = true
			a.Log.Log(ctx, level, "Could not report, and tries again", "error", err)
			wake := a.report // a connection that came back is a reason to try at once
			if !client.Unreachable(err) {
				wake = nil
			}
			a.pause(ctx, wait.next(err, a.Clock.Now().Sub(began)), wake)
		case sent:
			wait.reset()
			failing = false
		default:
			select {
			case <-ctx.Done():
			case <-a.report:
			}
		}
	}
	return nil
}

// tellOnce sends one report if there is anything to say.
func (a *Agent) tellOnce(ctx context.Context) (sent bool, err error) {
	if !a.Store.Identity().Enrolled() {
		return false, nil
	}
	var report protocol.Report
	next, introduce := a.facts.news(&report, a.Clock.Now())
	if introduce {
		hello := a.hello()
		report.Hello = &hello
	}
	report.AgentUpdate = a.updateNews(introduce)
	facts := report.AgentUpdate != nil || report.Hello != nil || report.Inventory != nil || report.Addresses != nil || report.Cleanliness != nil ||
		report.Endpoint != nil
	results, repeated := a.results()
	for _, op := range append(results, repeated...) {
		report.Operations = append(report.Operations, op.Report())
	}
	running, due := a.running.take()
	if due {
		report.Operations = append(report.Operations, running)
	}
	if !facts && len(report.Operations) == 0 {
		return false, nil
	}
	err = a.Link.Client().Report(ctx, report)
	switch {
	case client.IsProblem(err, protocol.ProblemNoOperation) && len(report.Operations) > 0:
		return true, a.tellEach(ctx, results, repeated)
	case err != nil && facts && refusedForGood(err):
		// Results matter more than facts that the manager won't have.
		a.Log.Error("The manager doesn't accept what was found out about this host", "error", err)
		a.facts.acknowledge(next)
		a.updateTold(report.AgentUpdate)
		return false, err
	case err != nil:
		return false, err
	}
	a.facts.acknowledge(next)
	a.updateTold(report.AgentUpdate)
	for _, op := range results {
		if err := a.Store.Acknowledge(op); err != nil {
			return true, err
		}
	}
	a.forgetRepeats(len(repeated))
	return true, nil
}

// tellEach sends results one by one, because the manager doesn't ask about one
// of them any more: the host was given to another Machine while it was away.
// Such a result is dropped, so that it doesn't hold up the others; should the
// manager ask again, the plan will say so.
func (a *Agent) tellEach(ctx context.Context, results, repeated []state.Operation) error {
	for _, op := range append(results, repeated...) {
		err := a.Link.Client().Report(ctx, protocol.Report{Operations: []protocol.OperationReport{op.Report()}})
		if client.IsProblem(err, protocol.ProblemNoOperation) {
			a.Log.Info("The manager no longer asks about an operation", "operation", op.Type, "id", op.ID, "state", op.State)
		} else if err != nil {
			return err
		}
		if err := a.Store.Acknowledge(op); err != nil {
			return err
		}
	}
	a.forgetRepeats(len(repeated))
	return nil
}

// maxResults bounds how many results one report has.
const maxResults = 6

// results are the results that the manager has yet to hear, and those that it
// has to hear again, as many as a report may have.
func (a *Agent) results() (results, repeated []state.Operation) {
	for _, op := range a.Store.Operations() {
		if op.Reportable() && len(results) < maxResults {
			results = append(results, op)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return results, slices.Clone(a.repeat[:min(len(a.repeat), maxResults-len(results))])
}

func (a *Agent) forgetRepeats(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.repeat = a.repeat[n:]
}

// refusedForGood reports whether sending the same again is pointless.
func refusedForGood(err error) bool {
	var refusal *client.ProblemError
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Problem.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// pace makes the running operation's step due now and then, but no quick
// operation ever, and with it what was found out since the operation began.
func (a *Agent) pace(ctx context.Context) {
	for a.Clock.Wait(ctx, progressGap) == nil {
		a.running.tick()
		signal(a.report)
	}
}

// utc drops the monotonic clock, which means nothing in a file.
func utc(t time.Time) time.Time { return t.UTC().Round(0) }

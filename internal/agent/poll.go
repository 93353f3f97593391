package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// tooFast is an answer that came sooner than a long-poll should without
// bringing anything new; a server that does so is given a rest.
const tooFast = time.Second

// skewNoted is how far clocks may be apart before a person is told.
const skewNoted = time.Minute

// poller is what polling remembers from one poll to the next.
type poller struct {
	revision  string
	connected bool
	state     string
	wait      *waits
}

// poll holds the long-poll open.
func (a *Agent) poll(ctx context.Context) error {
	p := &poller{wait: a.newWaits()}
	for ctx.Err() == nil {
		began := a.Clock.Now()
		plan, err := a.reachable(ctx, p)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent is being stopped
		}
		if errors.Is(err, errNetworkChanged) {
			a.Link.Client().Close()
			continue
		}
		if err != nil {
			if isStateError(err) {
				return err
			}
			if err := a.disconnected(ctx, p, err); err != nil {
				return err
			}
			a.pause(ctx, p.wait.next(err, a.Clock.Now().Sub(began)), a.network)
			continue
		}
		news := plan != nil && plan.Revision != p.revision
		if err := a.answered(ctx, p, plan); err != nil {
			return err
		}
		if news || a.Clock.Now().Sub(began) >= tooFast {
			p.wait.reset()
			continue
		}
		a.pause(ctx, p.wait.refused.Next(), nil)
	}
	return nil
}

// errNetworkChanged ends a poll whose connection may lead nowhere now.
var errNetworkChanged = errors.New("the host's addresses changed")

// reachable asks for the plan until the host's addresses change: a connection
// from an address that is gone would be noticed only much later.
func (a *Agent) reachable(ctx context.Context, p *poller) (*protocol.Plan, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.mu.Lock()
	a.reconnect = cancel
	a.mu.Unlock()
	plan, err := a.ask(ctx, p)
	if err != nil && !isStateError(err) && errors.Is(context.Cause(ctx), errNetworkChanged) {
		return nil, errNetworkChanged
	}
	return plan, err
}

// networkChanged has the host connect anew, at once.
func (a *Agent) networkChanged() {
	signal(a.network)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reconnect != nil {
		a.reconnect(errNetworkChanged)
	}
}

// ask enrols the host if it has to be, and fetches the plan.
func (a *Agent) ask(ctx context.Context, p *poller) (*protocol.Plan, error) {
	if !a.Store.Identity().Enrolled() {
		if err := a.Enrol(ctx); err != nil {
			return nil, err
		}
		identity := a.Store.Identity()
		a.Log.Info("Enrolled", "host", identity.Namespace+"/"+identity.Name, "approved", identity.Approved)
	}
	if !p.connected {
		// Whoever answers now may be another manager, or one that was restored:
		// it hears everything again, and tells its whole plan.
		p.revision = ""
	}
	return a.Link.Client().Plan(ctx, p.revision, a.BootID)
}

// answered handles what a successful poll brought.
func (a *Agent) answered(ctx context.Context, p *poller, plan *protocol.Plan) error {
	if !p.connected {
		p.connected = true
		a.facts.forget()
		a.mu.Lock()
		a.unknownSince = time.Time{}
		a.mu.Unlock()
		signal(a.report)
	}
	if err := a.confirmUpdate(); err != nil {
		return err
	}
	if err := a.noteTime(); err != nil {
		return err
	}
	if plan != nil && plan.Revision != p.revision {
		if err := a.accept(ctx, *plan); err != nil {
			return err
		}
		p.revision = plan.Revision
	}
	a.notice(p, Connected, nil)
	a.ForgetToken()
	return a.rotateIfDue(ctx)
}

// accept makes a plan the host's own: it is remembered, then acted upon.
func (a *Agent) accept(ctx context.Context, plan protocol.Plan) error {
	if err := a.Store.SetPlan(state.Plan{Desired: plan.Desired, Operation: plan.Operation}); err != nil {
		return err
	}
	if plan.Operation != nil || plan.Desired.Hostname != "" {
		// A host that has not been approved is told nothing.
		if err := a.Store.UpdateIdentity(func(i *state.Identity) { i.Approved = true }); err != nil {
			return err
		}
	}
	if op := plan.Operation; op != nil {
		a.Log.Info("Received a plan", "operation", op.Type, "id", op.ID, "cluster", op.ClusterName, "machine", op.MachineName)
		if record, known := a.Store.Operation(op.Type, op.ID); known && record.Done() && record.Acknowledged {
			a.tellAgain(record)
		}
	}
	if name := plan.Desired.Hostname; name != "" {
		if err := a.Namer.SetHostname(ctx, name); err != nil {
			a.Log.Error("Could not set the host name", "hostname", name, "error", err)
		} else {
			a.observeAddresses(ctx)
		}
	}
	a.endpointChanged()
	a.endSuperseded()
	signal(a.work)
	if err := a.Link.learn(ctx, plan.Desired); err != nil {
		if isStateError(err) {
			return err
		}
		a.Log.Error("Kept the servers and roots that work", "error", err)
	}
	a.observeTrust()
	// An operation that begins now reports soon, or is over soon: the rest goes into
	// that report, as each costs the manager a write.
	if _, begins := a.next(); !begins {
		signal(a.report)
	}
	return nil
}

// tellAgain reports a result that the manager has forgotten, as after a
// restore.
func (a *Agent) tellAgain(op state.Operation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pending := range a.repeat {
		if pending.Type == op.Type && pending.ID == op.ID {
			return
		}
	}
	a.repeat = append(a.repeat, op)
	signal(a.report)
}

// disconnected handles a failed poll.
func (a *Agent) disconnected(ctx context.Context, p *poller, cause error) error {
	p.connected = false
	a.notice(p, judge(cause), cause)
	return a.readopt(ctx, cause)
}

func judge(err error) string {
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

// readopt asks to be let in again after every manager has denied knowing the
// host for long. During a move between management clusters that lasts seconds,
// and the host must not turn up at the old one as a new host.
func (a *Agent) readopt(ctx context.Context, cause error) error {
	if !client.IsProblemEverywhere(cause, protocol.ProblemUnknownHost) {
		return nil
	}
	now := a.Clock.Now()
	a.mu.Lock()
	if a.unknownSince.IsZero() {
		a.unknownSince = now
	}
	since := a.unknownSince
	a.mu.Unlock()
	if !a.Store.Identity().Enrolled() || now.Sub(since) < a.ReadoptAfter {
		return nil
	}
	a.Log.Info("Asking to be adopted: nobody has known this host for long", "unknownFor", now.Sub(since).Round(time.Second))
	if err := a.Enrol(ctx); err != nil {
		if isStateError(err) {
			return err
		}
		a.Log.Info("Not adopted", "error", err)
	}
	return nil
}

// notice tells people when the connection's state changes.
func (a *Agent) notice(p *poller, now string, cause error) {
	if now == Connected && !a.Store.Identity().Approved {
		now = Pending
	}
	if p.state == now {
		return
	}
	p.state = now
	connection := Connection{State: now, Since: a.Clock.Now().UTC()}
	if skew := a.Store.Clock().Skew; skew.Abs() > skewNoted {
		connection.ClockSkew = skew.String()
	}
	if cause != nil {
		connection.Error = cause.Error()
		a.Log.Warn("Not connected", "state", now, "error", cause)
	} else {
		a.Log.Info("Connected", "state", now)
	}
	a.Status(connection)
}

// noteTime remembers what the server said the time is.
func (a *Agent) noteTime() error {
	now := a.Link.Client()
	told, heard := now.ServerTime()
	if told.IsZero() {
		return nil
	}
	if before := a.Store.Clock().ServerTime; told.Before(before) {
		a.Log.Warn("The manager's clock was ahead of what it says now; this host's own said that its certificate is good",
			"said", before, "says", told, "host", heard)
	}
	next := state.Clock{ServerTime: told.UTC(), Skew: heard.Sub(told).Round(time.Second), Agreed: now.Agreed().UTC()}
	if err := a.Store.SetClock(next); err != nil {
		return fmt.Errorf("remembering the server's time: %w", err)
	}
	return nil
}

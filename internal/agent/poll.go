package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// minPollTime is how long a long poll should last if it brings nothing new. The poller
// waits after answers that come earlier, to protect the manager.
const minPollTime = time.Second

// minShownSkew is the clock skew from which on the status shows it.
const minShownSkew = time.Minute

// poller keeps a long poll open and hands over each new plan. Its run owns the fields
// that mu does not protect.
type poller struct {
	store        *state.Store
	manager      *connection.Manager
	follower     *connection.Follower
	enroller     *enroller
	bootID       string
	readoptAfter time.Duration
	// reconnected is called after the first answer over a connection, answered after every
	// answer, acceptPlan with each new plan, reportEndpoint if the manager asks for a
	// report, and observe when all that is done.
	reconnected func()
	// connection is called when the manager has answered over a new connection, and when
	// that is lost.
	connection     func(isConnected bool)
	answered       func() error
	acceptPlan     func(context.Context, protocol.Plan) error
	reportEndpoint func()
	observe        func(context.Context)
	showStatus     func(connection.Status)
	clock          retry.Clock
	random         func() float64
	log            *slog.Logger
	// networkChanged is raised when an attempt to connect may succeed now.
	networkChanged signal.Signal

	// revision is that of the last plan.
	revision  string
	connected bool
	// state is the last connection.Status.State that was shown.
	state string
	// unknownSince is when all managers began to deny knowing the host. It is zero after any
	// other answer, and if a manager could not be reached.
	unknownSince time.Time

	mu sync.Mutex
	// endPoll ends the current poll.
	endPoll context.CancelCauseFunc
	// staleConnection is true if the next poll must not use the current connection.
	staleConnection bool
}

// errNetworkChanged ends a poll whose connection may be dead.
var errNetworkChanged = errors.New("the host's addresses changed")

// run polls until ctx ends.
func (p *poller) run(ctx context.Context) error {
	delays := connection.NewDelays(p.random)
	for ctx.Err() == nil {
		began := p.clock.Now()
		plan, err := p.poll(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent is being stopped
		}
		if errors.Is(err, errNetworkChanged) || errors.Is(err, client.ErrConnectionReplaced) {
			p.setConnected(false)
			continue
		}
		if err != nil {
			if state.IsWriteError(err) {
				return err
			}
			followed, failed := p.handleError(ctx, err)
			if failed != nil {
				return failed
			}
			if followed {
				delays.Reset()
				continue
			}
			p.networkChanged.WaitFor(ctx, p.clock, delays.AfterError(err, p.clock.Now().Sub(began)))
			continue
		}
		isNew := plan != nil && plan.Revision != p.revision
		if err := p.handleAnswer(ctx, plan); err != nil {
			return err
		}
		if isNew || p.clock.Now().Sub(began) >= minPollTime {
			delays.Reset()
			continue
		}
		_ = p.clock.Wait(ctx, delays.AfterEarlyAnswer())
	}
	return nil
}

// poll waits for a plan until the host's addresses change: the loss of a connection
// from a former address would be noticed only much later.
func (p *poller) poll(ctx context.Context) (*protocol.Plan, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.endPoll = cancel
	isStale := p.staleConnection
	p.staleConnection = false
	p.mu.Unlock()
	if isStale {
		p.manager.Client().Reconnect()
		p.setConnected(false)
	}
	plan, err := p.requestPlan(ctx)
	if err != nil && !state.IsWriteError(err) && errors.Is(context.Cause(ctx), errNetworkChanged) {
		return nil, errNetworkChanged
	}
	return plan, err
}

// reconnect ends the current poll and begins another one at once, over a new connection.
// Between two polls it makes the next one use a new connection.
func (p *poller) reconnect() {
	p.networkChanged.Raise()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.staleConnection = true
	if p.endPoll != nil {
		p.endPoll(errNetworkChanged)
	}
}

// requestPlan enrols the host if necessary, and requests the plan.
func (p *poller) requestPlan(ctx context.Context) (*protocol.Plan, error) {
	if !p.store.Identity().Enrolled() {
		if err := p.enroller.enrol(ctx); err != nil {
			return nil, err
		}
		identity := p.store.Identity()
		p.log.Info("Enrolled", "host", identity.Namespace+"/"+identity.Name, "approved", identity.Approved)
	}
	if !p.connected {
		// Another manager may answer now, or one that was restored from a backup: request
		// the whole plan.
		p.revision = ""
	}
	return p.manager.Client().Plan(ctx, p.revision, p.bootID)
}

// handleAnswer handles a successful poll. It returns only errors of the state
// directory.
func (p *poller) handleAnswer(ctx context.Context, plan *protocol.Plan) error {
	if !p.connected {
		p.setConnected(true)
		p.unknownSince = time.Time{}
		p.follower.Answered()
		p.reconnected()
	}
	if err := p.answered(); err != nil {
		return err
	}
	if err := p.manager.RecordServerTime(); err != nil {
		return err
	}
	if plan != nil && plan.Revision != p.revision {
		if err := p.acceptPlan(ctx, *plan); err != nil {
			return err
		}
		p.revision = plan.Revision
	}
	if plan != nil && plan.ReportEndpoint {
		p.reportEndpoint()
	}
	p.setStatus(connection.Connected, nil)
	p.enroller.forgetToken()
	p.observe(ctx)
	return p.manager.RotateIfDue(ctx)
}

// handleError handles a failed poll, and reports whether the host has followed to another
// management cluster. It returns only errors of the state directory.
func (p *poller) handleError(ctx context.Context, cause error) (followed bool, err error) {
	p.setConnected(false)
	p.setStatus(connection.StateAfter(cause), cause)
	if followed, err = p.follower.Failed(ctx, cause); followed || err != nil {
		return followed, err
	}
	return false, p.readoptIfUnknown(ctx, cause)
}

func (p *poller) setConnected(connected bool) {
	p.connected = connected
	p.connection(connected)
}

// readoptIfUnknown asks to be re-adopted once every manager has denied knowing the host
// for readoptAfter, without any other answer or failure in between. A move between management
// clusters takes seconds, during which the host must not enrol as a new host at the old manager.
// A machine that an administrator has declared for a host enrols at once.
func (p *poller) readoptIfUnknown(ctx context.Context, cause error) error {
	isInvited := client.IsInvited(cause)
	if !isInvited && !client.IsProblemEverywhere(cause, protocol.ProblemUnknownHost) {
		p.unknownSince = time.Time{}
		return nil
	}
	now := p.clock.Now()
	if p.unknownSince.IsZero() {
		p.unknownSince = now
	}
	unknownFor := now.Sub(p.unknownSince)
	if !p.store.Identity().Enrolled() || !isInvited && unknownFor < p.readoptAfter {
		return nil
	}
	p.log.Info("Enrolling again: no manager knows this host", "unknownFor", unknownFor.Round(time.Second), "declared", isInvited)
	if err := p.enroller.enrol(ctx); err != nil {
		if state.IsWriteError(err) {
			return err
		}
		p.log.Info("Not enrolled", "error", err)
	}
	return nil
}

// setStatus logs and shows a change of the connection's state.
func (p *poller) setStatus(now string, cause error) {
	if now == connection.Connected && !p.store.Identity().Approved {
		now = connection.Pending
	}
	if p.state == now {
		return
	}
	p.state = now
	status := connection.Status{State: now, Since: p.clock.Now().UTC()}
	if skew := p.store.Clock().Skew; skew.Abs() > minShownSkew {
		status.ClockSkew = skew.String()
	}
	if cause != nil {
		status.Error = cause.Error()
		p.log.Warn("Not connected", "state", now, "error", cause)
	} else {
		p.log.Info("Connected", "state", now)
	}
	p.showStatus(status)
}

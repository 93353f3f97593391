package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Limits of the back-off between two attempts to reach the manager, and
// between two attempts at a reset.
const (
	retryBase = time.Second
	retryMax  = time.Minute
	// A host without a network begins an attempt at most reachMax+reachLeast after
	// the one before began: it is back within five seconds of its network.
	reachMax    = 4 * time.Second
	reachLeast  = 500 * time.Millisecond
	refusedMax  = 5 * time.Minute
	progressGap = 10 * time.Second
)

// Observer finds out about the host.
type Observer interface {
	Inventory(ctx context.Context) (protocol.Inventory, error)
	Addresses(ctx context.Context) ([]protocol.Address, error)
	// Cleanliness looks for what former nodes left behind.
	Cleanliness(ctx context.Context) (protocol.Cleanliness, error)
}

// Namer names the host.
type Namer interface {
	SetHostname(ctx context.Context, name string) error
}

// Watcher calls changed whenever the host's addresses may have changed, until
// ctx ends.
type Watcher interface {
	WatchAddresses(ctx context.Context, changed func()) error
}

// Linker gives the Node that runs on this host its providerID, and does
// nothing on a host that is no node.
type Linker interface {
	Link(ctx context.Context, providerID string) (linked bool, err error)
}

// Runner executes operations of one type. It returns an error, and no result,
// when the operation has to be resumed: because ctx ended, or because what
// failed has no bearing on the outcome.
type Runner interface {
	Run(ctx context.Context, op state.Operation, progress func(step string)) (Result, error)
	// Abort ends what goes on without Run, once ctx was ended for good.
	Abort(op state.Operation) error
	// Settle drops what is not needed once the result is recorded. It may be
	// called again for an operation that is settled.
	Settle(op state.Operation) error
}

// Result is how an operation ended.
type Result struct {
	State protocol.OperationState
	// Step is the step that failed.
	Step    string
	Message string
	// Erased is what became of each disk, if the operation erased.
	Erased []protocol.ErasedDisk
}

// Options are what an Agent works with.
type Options struct {
	Store *state.Store
	// Link is the way to the manager.
	Link *Link
	// Token lets an unknown host in.
	Token string
	// ForgetTokenFile removes the token from where it came from; nil means that
	// it came from nowhere. It is called once, when the host has been let in.
	ForgetTokenFile func() error
	Observer        Observer
	Namer           Namer
	Watcher         Watcher
	Linker          Linker
	// Runners are what the agent can do.
	Runners map[protocol.OperationType]Runner
	// Erases tells that a Reset erases data disks when it is told to.
	Erases bool
	// Updater keeps the agent's program at the release that the plan pins; nil
	// means that nothing does.
	Updater Updater
	// Keeper keeps what the plan desires of the cluster's endpoint, and Prober probes
	// it; nil means that nothing does.
	Keeper Keeper
	Prober Prober
	// RotateAfter is the age at which the key is replaced.
	RotateAfter time.Duration
	// ReadoptAfter is how long the host must have been unknown before it asks
	// to be adopted.
	ReadoptAfter time.Duration
	// Status is told how the connection is; nil means nobody is.
	Status  func(Connection)
	Clock   retry.Clock
	Rand    func() float64
	Log     *slog.Logger
	Version string
	// BootID changes with every boot.
	BootID string
}

// Agent runs on a host. Use New.
type Agent struct {
	Options

	facts   *facts
	running progress

	// Signals: "there may be something to do", "… to report".
	work   chan struct{}
	report chan struct{}
	// network is signalled when the host's network changed.
	network chan struct{}
	// retargeted is signalled when something else is to be probed.
	retargeted chan struct{}
	// keepRetry paces attempts at the endpoint; the operations' goroutine uses it.
	keepRetry *retry.Backoff

	mu      sync.Mutex
	keeping keeping
	// repeat are results that the manager knew once and asks for again.
	repeat []state.Operation
	// supersede ends the bootstrap that runs, if one does.
	supersede context.CancelCauseFunc
	// linked is the providerID that the Node is known to have.
	linked string
	// toldUpdate is what the manager knows of the last update.
	toldUpdate *protocol.AgentUpdate
	// reconnect ends the poll that is under way.
	reconnect context.CancelCauseFunc
	// unknownSince is when managers began to deny knowing the host.
	unknownSince time.Time
}

// New makes an agent.
func New(o Options) *Agent {
	if o.Status == nil {
		o.Status = func(Connection) {}
	}
	a := &Agent{
		Options: o,
		facts:   &facts{},
		work:    make(chan struct{}, 1),
		report:  make(chan struct{}, 1),
		network: make(chan struct{}, 1),

		retargeted: make(chan struct{}, 1),
	}
	a.keepRetry = a.backoff(retryMax)
	return a
}

// Run works until ctx ends, then returns nil. It returns ErrRestart when the
// program was replaced, and another error when the agent can't go on: its state
// cannot be written.
func (a *Agent) Run(ctx context.Context) error {
	a.settleAll()
	a.observe(ctx)
	if a.Keeper != nil && a.Store.Plan().Desired.Endpoint == nil {
		a.facts.update(func(o *observation) { o.endpoint.kept = &protocol.EndpointReport{} })
	}
	a.endpointChanged()
	asked := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var activities sync.WaitGroup
	for name, activity := range map[string]func(context.Context) error{
		"polling": a.poll, "working": a.operate, "reporting": a.tell, "watching addresses": a.watch,
		"probing": a.probe,
	} {
		activities.Go(func() {
			if err := activity(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	activities.Wait()
	if asked.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// signal never blocks: one that is pending says enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d, for a signal, or for the end of ctx.
func (a *Agent) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = a.Clock.Wait(ctx, d)
	}()
	select {
	case <-wake:
		cancel()
		<-over
	case <-over:
	}
}

func (a *Agent) backoff(most time.Duration) *retry.Backoff {
	return &retry.Backoff{Base: retryBase, Max: most, Rand: a.Rand}
}

func (a *Agent) hello() protocol.Hello {
	now := utc(a.Clock.Now())
	hello := protocol.Hello{
		Protocol: protocol.Version, AgentVersion: a.Version, BootID: a.BootID,
		Time: &now, TrustDigest: a.Link.TrustDigest(),
	}
	// In the order of the protocol, so that equal abilities look equal.
	for _, can := range []struct {
		able       bool
		capability protocol.Capability
	}{
		{a.Runners[protocol.OperationBootstrap] != nil, protocol.CapabilityBootstrap},
		{a.Runners[protocol.OperationReset] != nil, protocol.CapabilityReset},
		{true, protocol.CapabilityRotate},
		{a.Runners[protocol.OperationReboot] != nil, protocol.CapabilityReboot},
		{a.Runners[protocol.OperationUpgrade] != nil, protocol.CapabilityUpgrade},
		{a.Erases, protocol.CapabilityErase},
		{a.Updater != nil && a.Updater.Able(), protocol.CapabilityUpdate},
		{a.Keeper != nil && a.Prober != nil, protocol.CapabilityEndpoint},
		{a.Keeper != nil, protocol.CapabilityFiles},
	} {
		if can.able {
			hello.Capabilities = append(hello.Capabilities, can.capability)
		}
	}
	return hello
}

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/guard"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oplog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/progress"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/successor"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// Options are what an Agent works with.
type Options struct {
	Store   *state.Store
	Manager *connection.Manager
	// Token is the registration token for a host that the manager does not know.
	Token string
	// RemoveToken removes the token from the configuration; nil if it did not come from
	// one. It is called once, when the host is approved.
	RemoveToken func() error
	Platform    platform.Platform
	Node        node.Changer
	// Runners are the operations that the agent can run.
	Runners map[protocol.OperationType]operation.Runner
	// CanErase is true if a Reset can erase data disks.
	CanErase bool
	// CanAdopt is true if a Bootstrap can take over a Node that runs already.
	CanAdopt bool
	// Updater keeps the agent's program at the release that the plan pins; nil turns that off.
	Updater Updater
	// Stager keeps the bundle of Kubernetes that the plan desires on the disk; nil turns that off.
	Stager Stager
	// Snapshotter takes the snapshots of etcd that the plan desires; nil turns that off.
	Snapshotter Snapshotter
	// Certificates reads when certificates of a control plane on the host end; nil: nothing is
	// reported of them.
	Certificates func() []protocol.CertificateFacts
	// Upload uploads a snapshot of etcd, as upload.Uploader does; nil turns that off.
	Upload func(ctx context.Context, want protocol.EtcdSnapshotUpload) (protocol.EtcdSnapshotObject, error)
	// Applier and Prober serve the control plane endpoint that the plan desires; nil
	// turns them off.
	Applier Applier
	Prober  Prober
	// Local keeps the endpoint that the Applier serves on the host; nil if it cannot.
	Local LocalEndpoint
	// Tunnel connects the tunnel that the plan desires to targets on the host; nil turns
	// tunnels off.
	Tunnel tunnel.Dialer
	// ReadoptAfter is how long the manager must not have known the host before the host
	// asks to be re-adopted.
	ReadoptAfter time.Duration
	// TrialSpread is Spread of successor.Trial.
	TrialSpread time.Duration
	// Status is called with each change of the connection's state; it may be nil.
	Status  func(connection.Status)
	Clock   retry.Clock
	Rand    func() float64
	Log     *slog.Logger
	Version string
	// BootID changes with every boot.
	BootID string
}

// LocalEndpoint is the endpoint that the host serves itself. It does not depend on plans.
type LocalEndpoint interface {
	// Keep restores what is missing. It is called before anything else.
	Keep(ctx context.Context) (served string, err error)
	// Run keeps it until ctx ends, and calls changed when the Applier's report may be
	// outdated.
	Run(ctx context.Context, changed func())
}

// Agent runs on a host. Use New.
type Agent struct {
	o Options

	observer   *observer
	enroller   *enroller
	poller     *poller
	operations *operationLoop
	endpoint   *endpointUpkeep
	probing    *endpointProbing
	reporter   *reporter
	tunneller  *tunneller
	bundles    *bundleUpkeep
	snapshots  *snapshotUpkeep
	uploads    *upload.Loop
	logs       *oplog.Sender
	successor  *successor.Trial
}

// New returns an Agent, which does nothing until one of its methods is called.
func New(o Options) *Agent {
	if o.Status == nil {
		o.Status = func(connection.Status) {}
	}
	if reset := o.Runners[protocol.OperationReset]; reset != nil {
		o.Runners = maps.Clone(o.Runners)
		o.Runners[protocol.OperationReset] = guard.Runner{Runner: reset, Store: o.Store}
	}
	a := &Agent{o: o}
	facts, running := &facts{}, &progress.Progress{}
	a.observer = &observer{
		platform: o.Platform, manager: o.Manager, facts: facts, certificates: o.Certificates, log: o.Log,
		starting: preflight.NewWatch(o.Clock, a.observeSoftware),
	}
	a.reporter = &reporter{
		store: o.Store, manager: o.Manager, facts: facts, running: running, updater: o.Updater, hello: a.hello,
		clock: o.Clock, random: o.Rand, log: o.Log, wake: signal.New(),
	}
	work := signal.New()
	a.endpoint = &endpointUpkeep{
		applier: o.Applier, store: o.Store, facts: facts, reporter: a.reporter, clock: o.Clock, log: o.Log, work: work,
		backoff: retry.NewBackoff(o.Rand), isOperationDue: func() bool { return a.operations.isDue() },
	}
	a.probing = &endpointProbing{
		prober: o.Prober, endpoint: a.endpoint, facts: facts, reporter: a.reporter, log: o.Log, targetChanged: signal.New(),
	}
	a.bundles = &bundleUpkeep{
		stager: o.Stager, store: o.Store, facts: facts, reporter: a.reporter, isOperationDue: func() bool { return a.operations.isDue() },
		clock: o.Clock, log: o.Log, wake: signal.New(),
	}
	a.snapshots = &snapshotUpkeep{
		snapshotter: o.Snapshotter, store: o.Store, facts: facts, reporter: a.reporter, isOperationDue: func() bool { return a.operations.isDue() },
		backoff: retry.NewBackoff(o.Rand), clock: o.Clock, log: o.Log, wake: signal.New(),
	}
	a.uploads = &upload.Loop{
		Upload: o.Upload, Desired: func() *protocol.EtcdSnapshotUpload { return o.Store.Plan().Desired.EtcdSnapshotUpload },
		Report: a.uploadReported, Backoff: retry.NewBackoff(o.Rand), Clock: o.Clock, Log: o.Log, Wake: signal.New(),
	}
	logs := oplog.New(oplog.Options{
		Files: o.Store.Documents(), HostID: func() string { return o.Store.Identity().HostID }, Now: o.Clock.Now, Log: o.Log,
	})
	a.logs = &oplog.Sender{
		State: o.Store, Logs: logs, Manager: o.Manager, Runners: o.Runners, Backoff: retry.NewBackoff(o.Rand), Clock: o.Clock, Log: o.Log, Wake: signal.New(),
	}
	a.successor = &successor.Trial{
		Successor: o.Manager.Successor, Try: o.Manager.TrySuccessor, Report: a.successorTried, Spread: o.TrialSpread,
		Backoff: &retry.Backoff{Base: time.Second, Max: successor.MaxDelay, Rand: o.Rand}, Clock: o.Clock, Log: o.Log, Wake: signal.New(),
	}
	a.operations = &operationLoop{
		logs: logs, store: o.Store, manager: o.Manager, runners: o.Runners, running: running, reporter: a.reporter,
		node: node.NewUpkeep(o.Node, o.Log), endpoint: a.endpoint, bundles: a.bundles, snapshots: a.snapshots, updater: o.Updater, afterOperation: a.afterOperation,
		version: o.Version, clock: o.Clock, random: o.Rand, log: o.Log, work: work,
	}
	a.enroller = &enroller{
		store: o.Store, manager: o.Manager, observer: a.observer, hello: a.hello, token: o.Token, removeToken: o.RemoveToken, log: o.Log,
	}
	a.tunneller = &tunneller{
		store: o.Store, manager: o.Manager, dial: o.Tunnel, bootID: o.BootID, clock: o.Clock, random: o.Rand, log: o.Log, wake: signal.New(),
	}
	a.poller = &poller{
		store: o.Store, manager: o.Manager, follower: connection.NewFollower(o.Manager), enroller: a.enroller, bootID: o.BootID, readoptAfter: o.ReadoptAfter,
		reconnected: a.reconnected, connection: a.tunneller.setPolling, answered: a.confirmUpdate, acceptPlan: a.acceptPlan, reportEndpoint: a.reportEndpoint,
		observe: a.observeSoftware, showStatus: o.Status,
		clock: o.Clock, random: o.Rand, log: o.Log, networkChanged: signal.New(),
	}
	return a
}

// Run works until ctx ends, then returns nil. It returns ErrRestart once the agent's
// program was replaced, and another error if the agent cannot continue because its
// state cannot be written.
func (a *Agent) Run(ctx context.Context) error {
	a.startLocal(ctx)
	a.operations.cleanupAll()
	a.observer.observeAll(ctx)
	a.endpoint.start()
	a.bundles.start()
	a.endpointChanged()
	stopped := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var activities sync.WaitGroup
	for name, activity := range map[string]func(context.Context) error{
		"polling":                    a.poller.run,
		"running operations":         a.operations.run,
		"reporting":                  a.reporter.run,
		"watching addresses":         a.watchAddresses,
		"probing":                    a.probing.run,
		"keeping the tunnel":         a.tunneller.run,
		"staging bundles":            a.bundles.run,
		"taking snapshots of etcd":   a.snapshots.run,
		"uploading snapshots":        a.uploads.Run,
		"sending logs":               a.logs.Run,
		"trying the successor":       a.successor.Run,
		"keeping the local endpoint": a.keepLocal,
		"watching the start":         a.observer.starting.Run,
	} {
		activities.Go(func() {
			if err := activity(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	activities.Wait()
	if stopped.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// Enrol enrols the host once; Run does that by itself. Enrolling again with the same
// key changes nothing.
func (a *Agent) Enrol(ctx context.Context) error { return a.enroller.enrol(ctx) }

// ForgetToken drops the registration token of an approved host, from memory and from
// the configuration, so that nobody who reads the disk later can enrol with it. It does
// nothing on a host that is not approved.
func (a *Agent) ForgetToken() { a.enroller.forgetToken() }

// Execute runs an operation that no plan ordered, and records its result.
func (a *Agent) Execute(ctx context.Context, op state.Operation) (operation.Result, error) {
	return a.operations.executeLocal(ctx, op)
}

// hello describes the agent to the manager.
func (a *Agent) hello() protocol.Hello {
	now := state.WithoutMonotonic(a.o.Clock.Now())
	hello := protocol.Hello{
		Protocol: protocol.Version, AgentVersion: a.o.Version, BootID: a.o.BootID,
		Time: &now, TrustDigest: a.o.Manager.TrustDigest(),
	}
	// The order is the protocol's, so that equal capabilities compare equal.
	for _, c := range []struct {
		supported  bool
		capability protocol.Capability
	}{
		{a.o.Runners[protocol.OperationBootstrap] != nil, protocol.CapabilityBootstrap},
		{a.o.Runners[protocol.OperationReset] != nil, protocol.CapabilityReset},
		{true, protocol.CapabilityRotate},
		{a.o.Runners[protocol.OperationReboot] != nil, protocol.CapabilityReboot},
		{a.o.Runners[protocol.OperationUpgrade] != nil, protocol.CapabilityUpgrade},
		{a.o.CanErase, protocol.CapabilityErase},
		{a.o.Updater != nil && a.o.Updater.CanUpdate(), protocol.CapabilityUpdate},
		{a.o.Applier != nil && a.o.Prober != nil, protocol.CapabilityEndpoint},
		{a.o.Applier != nil, protocol.CapabilityFiles},
		{a.o.Applier != nil && a.o.Prober != nil, protocol.CapabilityReportEndpoint},
		{a.o.Tunnel != nil, protocol.CapabilityTunnel},
		{a.o.Applier != nil && a.o.Local != nil, protocol.CapabilityLocalEndpoint},
		{a.o.Stager != nil, protocol.CapabilityBundle},
		{a.o.Stager != nil && a.o.Runners[protocol.OperationNodeUpgrade] != nil, protocol.CapabilityNodeUpgrade},
		{a.o.Runners[protocol.OperationUpgrade] != nil && a.o.Runners[protocol.OperationNodeUpgrade] != nil, protocol.CapabilityNodeImage},
		{a.o.Snapshotter != nil, protocol.CapabilityEtcdSnapshot},
		{a.o.Runners[protocol.OperationEtcdRestore] != nil, protocol.CapabilityEtcdRestore},
		{a.o.Runners[protocol.OperationEtcdRestore] != nil, protocol.CapabilityEtcdRestoreOwnData},
		{a.o.Runners[protocol.OperationControlPlaneHalt] != nil, protocol.CapabilityControlPlaneHalt},
		{a.o.Upload != nil, protocol.CapabilityEtcdSnapshotUpload},
		{a.o.Runners[protocol.OperationEtcdRestore] != nil, protocol.CapabilityEtcdSnapshotFetch},
		{a.o.Upload != nil && a.o.Runners[protocol.OperationEtcdRestore] != nil, protocol.CapabilityEtcdSnapshotRelay},
		{a.o.Upload != nil, protocol.CapabilityEtcdSnapshotFolder},
		{a.o.Runners[protocol.OperationEtcdRestore] != nil, protocol.CapabilityControlPlaneRebuild},
		{a.o.Runners[protocol.OperationCertificateRenewal] != nil, protocol.CapabilityCertificateRenewal},
		{true, protocol.CapabilityLogs},
		{true, protocol.CapabilityFollow},
		{a.o.CanAdopt, protocol.CapabilityAdopt},
	} {
		if c.supported {
			hello.Capabilities = append(hello.Capabilities, c.capability)
		}
	}
	return hello
}

package agent

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// acceptPlan stores a plan, then wakes whatever applies it. It returns only errors of
// the state directory.
func (a *Agent) acceptPlan(ctx context.Context, plan protocol.Plan) error {
	store, log := a.o.Store, a.o.Log
	if op := plan.Operation; op != nil { // before the plan is stored, so that it never runs
		if err := store.Adopt(*op); err != nil {
			return err
		}
	}
	if err := store.SetPlan(state.Plan{Desired: plan.Desired, Operation: plan.Operation}); err != nil {
		return err
	}
	if plan.Operation != nil || plan.Desired.Hostname != "" {
		// Only an approved host gets a plan with content.
		if err := store.UpdateIdentity(func(i *state.Identity) { i.Approved = true }); err != nil {
			return err
		}
	}
	if op := plan.Operation; op != nil {
		log.Info("Received a plan", "operation", op.Type, "id", op.ID, "cluster", op.ClusterName, "machine", op.MachineName)
		a.repeatResults(*op)
	}
	if name := plan.Desired.Hostname; name != "" {
		if err := a.o.Platform.SetHostname(ctx, name); err != nil {
			log.Error("Could not set the host name", "hostname", name, "error", err)
		} else {
			a.observer.observeAddresses(ctx)
		}
	}
	a.endpointChanged()
	a.operations.planChanged()
	a.tunneller.wake.Raise()
	a.bundles.wake.Raise()
	a.snapshots.wake.Raise()
	a.uploads.Wake.Raise()
	a.logs.Wake.Raise()
	if err := a.o.Manager.AdoptServers(ctx, plan.Desired); err != nil {
		if state.IsWriteError(err) {
			return err
		}
		log.Error("Kept the current servers and trust bundle: those of the plan do not work", "error", err)
	}
	a.observer.observeTrust()
	a.successor.Wake.Raise()
	// Each report costs the manager a write. An operation that begins now is reported
	// soon, and that report includes everything else.
	if !a.operations.isDue() {
		a.reporter.wake.Raise()
	}
	return nil
}

// repeatResults reports again what the manager does not know of an operation that it wants.
func (a *Agent) repeatResults(op protocol.Operation) {
	store := a.o.Store
	if known, found := store.Operation(op.Type, op.ID); found && known.Done() && known.Acknowledged && op.SucceededAt == nil {
		a.reporter.repeatResult(known)
	}
	if reset, found := store.Operation(protocol.OperationReset, op.ID); found && op.Type == protocol.OperationBootstrap && reset.State == protocol.StateSucceeded {
		// The manager was restored from a backup that is older than the reset of this claim.
		a.reporter.repeatResult(reset)
	}
}

// uploadReported reports what was uploaded, or why that failed.
func (a *Agent) uploadReported(report protocol.EtcdSnapshotUploadReport) {
	a.observer.facts.update(func(o *observation) { o.etcdSnapshotUpload = &report })
	a.reporter.wake.Raise()
}

// successorTried reports whether the host reaches the successor.
func (a *Agent) successorTried(report protocol.SuccessorReport) {
	a.observer.facts.update(func(o *observation) { o.successor = &report })
	a.reporter.wake.Raise()
}

// reportEndpoint reports the endpoint, even if nothing has changed.
func (a *Agent) reportEndpoint() {
	a.observer.facts.update(func(o *observation) { o.endpoint.questions++ })
	a.reporter.wake.Raise()
}

// reconnected is called after the first answer over a connection, and after the first one
// since a failed poll. The answer may come from another manager or from one that was
// restored from a backup, so everything is reported again.
func (a *Agent) reconnected() { a.reporter.startOver() }

// confirmUpdate ends the trial of a new program, because it has reached the manager. It
// is called after each answer.
func (a *Agent) confirmUpdate() error {
	if a.o.Updater == nil {
		return nil
	}
	if err := a.o.Updater.Confirm(); err != nil {
		return err
	}
	a.reporter.wake.Raise()
	return nil
}

// observeSoftware looks for programs that a person has installed or removed, and for what a
// person has changed in the operating system. It is called after each answer. An operation that
// runs may be changing both, and afterOperation follows it.
func (a *Agent) observeSoftware(ctx context.Context) {
	if a.operations.isDue() {
		return
	}
	programs, system := a.observer.observeKubernetes(ctx), a.observer.observePreflight(ctx)
	certificates := a.observer.observeCertificates()
	if programs || system || certificates {
		a.reporter.wake.Raise()
	}
}

// afterOperation observes the host again, as the operation has changed it.
func (a *Agent) afterOperation(ctx context.Context) {
	a.observer.observeAll(ctx)
	a.endpointChanged()
}

// endpointChanged makes the agent apply and probe what the plan desires now.
func (a *Agent) endpointChanged() {
	a.endpoint.changed()
	a.probing.retarget()
}

// watchAddresses observes the addresses again when the platform reports a change.
func (a *Agent) watchAddresses(ctx context.Context) error {
	err := a.o.Platform.WatchAddresses(ctx, func() {
		if !a.observer.observeAddresses(ctx) {
			// A route or a link changed: a disconnected host should try to connect.
			a.poller.networkChanged.Raise()
			return
		}
		a.poller.reconnect()
		a.reporter.wake.Raise()
	})
	if err != nil && ctx.Err() == nil {
		a.o.Log.Warn("Changes of addresses are noticed only at the next start", "error", err)
	}
	return nil
}

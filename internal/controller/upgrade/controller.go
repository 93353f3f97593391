package upgrade

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters;elementalkubernetesreleases,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments,verbs=get
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles the upgrades of ElementalMachines. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache: kinds of other providers, of which there is no cache.
	APIReader client.Reader
	// Recorder records Events on ElementalMachines.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Selectors compiles selectors; nil compiles them without a cache.
	Selectors *selector.Compiler
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must
	// have; blank for all.
	WatchFilter string
}

func statusOf(m *infrav1.ElementalMachine) *infrav1.ElementalMachineStatus { return &m.Status }

// Reconcile reconciles the upgrade of one ElementalMachine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &infrav1.ElementalMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(machine, r.WatchFilter) || !machine.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s, err := r.read(ctx, machine)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	before := machine.Status.DeepCopy()
	result, err := r.step(ctx, s)
	if err != nil {
		return reconcile.RequeueConflict(result, err)
	}
	return reconcile.RequeueConflict(result, r.patchStatus(ctx, s, before))
}

// step does what is next, and sets s.condition.
func (r *Reconciler) step(ctx context.Context, s *scope) (ctrl.Result, error) {
	switch {
	case inplace.IsAsked(s.owner) && inplace.IsMarked(s.machine.Annotations):
		return ctrl.Result{}, r.upgrade(ctx, s)
	case inplace.IsMarked(s.owner.Annotations):
		s.condition = waitingForClusterAPI(s)
		return ctrl.Result{}, nil
	case isUnfinished(s.host) && (s.next == (inplace.Target{}) || !hasFailed(s.host)):
		return ctrl.Result{}, r.abandon(ctx, s)
	case s.next != inplace.Target{}: // also after a target that failed
		return r.prepare(ctx, s)
	default:
		return ctrl.Result{}, r.finish(ctx, s)
	}
}

// upgrade requests the upgrade of the host when it is its turn.
func (r *Reconciler) upgrade(ctx context.Context, s *scope) error {
	if err := r.retry(ctx, s); err != nil {
		return err
	}
	target := inplace.Wanted(s.owner, s.machine, s.host)
	if target == (inplace.Target{}) {
		return r.finish(ctx, s)
	}
	if s.condition = obstacle(s, target); s.condition != nil {
		return nil
	}
	if isRequested(s, target) {
		s.condition = progress(s)
		return nil
	}
	mayBegin, err := r.mayBegin(ctx, s)
	if err != nil {
		return err
	}
	if !mayBegin {
		s.condition = held(s, target)
		return r.stage(ctx, s, target)
	}
	if s.condition = notNow(s, target); s.condition != nil {
		return nil
	}
	if err := r.request(ctx, s, target); err != nil {
		return err
	}
	s.condition = progress(s)
	return nil
}

// abandon withdraws a request that Cluster API no longer asks for, if the host has changed
// nothing. Later it is safer to finish.
func (r *Reconciler) abandon(ctx context.Context, s *scope) error {
	op := inplace.Operation(s.host)
	if op == nil || op.State == infrav1.OperationRunning && op.Step == protocol.UpgradeStepStage {
		if err := r.patchHost(ctx, s, "withdrawing the upgrade of", func(h *infrav1.ElementalHost) { h.Spec.NodeUpgrade = nil }); err != nil {
			return err
		}
		return r.finish(ctx, s)
	}
	if err := r.retry(ctx, s); err != nil {
		return err
	}
	s.condition = progress(s)
	return nil
}

// finish ends an upgrade, or finds none.
func (r *Reconciler) finish(ctx context.Context, s *scope) error {
	if up := inplace.Request(s.host); up != nil && s.host.Spec.Bundle != nil && s.host.Spec.Bundle.SHA256 == up.Bundle.SHA256 && !isUnfinished(s.host) {
		// The host has installed the bundle.
		if err := r.patchHost(ctx, s, "removing the bundle of", func(h *infrav1.ElementalHost) { h.Spec.Bundle = nil }); err != nil {
			return err
		}
	}
	s.condition = finished(s)
	return nil
}

// isUnfinished reports whether the host has a request that has not succeeded.
func isUnfinished(host *infrav1.ElementalHost) bool {
	if inplace.Request(host) == nil {
		return false
	}
	op := inplace.Operation(host)
	return op == nil || op.State != infrav1.OperationSucceeded
}

// hasFailed reports whether the host has given up its request.
func hasFailed(host *infrav1.ElementalHost) bool {
	op := inplace.Operation(host)
	return op != nil && (op.State == infrav1.OperationFailed || op.State == infrav1.OperationUnsupported)
}

func isUpToDate(s *scope) bool { return inplace.IsUpToDate(s.owner, s.machine, s.host) }

func (r *Reconciler) patchHost(ctx context.Context, s *scope, doing string, change func(*infrav1.ElementalHost)) error {
	status := func(h *infrav1.ElementalHost) *infrav1.ElementalHostStatus { return &h.Status }
	return reconcile.PatchSpec(ctx, r.Client, s.host, status, fmt.Sprintf("%s host %s", doing, s.host.Name), change)
}

// retry makes another request if the annotation asks for it and the last one failed, and
// removes the annotation.
func (r *Reconciler) retry(ctx context.Context, s *scope) error {
	if _, asked := s.machine.Annotations[infrav1.RetryUpgradeAnnotation]; !asked {
		return nil
	}
	target := inplace.Wanted(s.owner, s.machine, s.host)
	if hasFailed(s.host) && target != (inplace.Target{}) && (target.Version == "" || bundleOf(s) != nil) {
		if err := r.request(ctx, s, target); err != nil {
			return err
		}
	}
	return reconcile.PatchSpec(ctx, r.Client, s.machine, statusOf, "removing annotation "+infrav1.RetryUpgradeAnnotation,
		func(m *infrav1.ElementalMachine) { delete(m.Annotations, infrav1.RetryUpgradeAnnotation) })
}

// isControlPlane reports whether the Machine is one of the control plane.
func isControlPlane(machine *clusterv1.Machine) bool {
	_, found := machine.Labels[clusterv1.MachineControlPlaneLabel]
	return found
}

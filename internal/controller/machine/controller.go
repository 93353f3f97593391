package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters;elementalkubernetesreleases,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles ElementalMachines. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache. It is used where a stale answer could bind a
	// host to the wrong machine or lose it.
	APIReader client.Reader
	// Recorder records Events on ElementalMachines.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Selectors compiles the machines' selectors; nil compiles them without a cache.
	Selectors *selector.Compiler
	// Nominations are shared with the reconciler of ElementalClusters. With nil,
	// workers may choose the same host, and all but one choose again.
	Nominations *placement.Nominations
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	// freeHosts is filled by watch events; with nil the hosts are listed each time.
	freeHosts    *placement.Candidates
	waiting      waitlist
	explanations explanationCache
}

// scope holds what one reconcile has read and found out. It has no methods.
type scope struct {
	machine *infrav1.ElementalMachine
	// owner is the Machine; nil unless it and the machine refer to each other.
	owner *clusterv1.Machine
	// mismatch says why the Machine in the owner reference is not the owner; blank if it
	// is, or does not exist.
	mismatch string
	// cluster is nil if it does not exist.
	cluster *clusterv1.Cluster
	// infraCluster is nil if it does not exist.
	infraCluster *infrav1.ElementalCluster
	// release is the release of the owner's version; nil if it does not exist.
	release *infrav1.ElementalKubernetesRelease
	// host is the host in spec.hostRef; nil if it does not exist.
	host *infrav1.ElementalHost
	// noHost is the message why no host could be chosen.
	noHost string
	// elsewhere are the other failure domains with a host that the machine could have, if
	// noHost is set.
	elsewhere []string
	// hostLost is the message why the chosen host can no longer be used.
	hostLost string
	// preparation says what the host lacks for its bootstrap, and where that comes from;
	// blank if it lacks nothing.
	preparation string
	// timedOut is true if the finalizer was removed without a reset, because the
	// host did not answer in time.
	timedOut bool
	// waiting is true if the machine looks for a host and has none.
	waiting bool
}

func statusOf(m *infrav1.ElementalMachine) *infrav1.ElementalMachineStatus { return &m.Status }

// Reconcile reconciles one ElementalMachine.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	machine := &infrav1.ElementalMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		if apierrors.IsNotFound(err) {
			r.waiting.remove(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(machine, r.WatchFilter) {
		// Its label may have changed while it was waiting.
		r.waiting.remove(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	s := &scope{machine: machine}
	before := machine.Status.DeepCopy()
	if err := read(ctx, r.Client, s); err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		// After an error the machine stays in the waitlist.
		if !s.waiting && reterr == nil {
			r.waiting.remove(req.NamespacedName)
		}
	}()
	ctx = ctrl.LoggerInto(ctx, logger(ctx, s))

	if paused(s) {
		if err := r.unblockPausedMove(ctx, s); err != nil {
			return reconcile.RequeueConflict(ctrl.Result{}, err)
		}
		return ctrl.Result{}, r.patchStatus(ctx, s, before)
	}
	step := r.reconcileNormal
	if !machine.DeletionTimestamp.IsZero() {
		step = r.reconcileDelete
	}
	result, err := step(ctx, s)
	if deleted := !machine.DeletionTimestamp.IsZero() && len(machine.Finalizers) == 0; !deleted && !apierrors.IsConflict(err) {
		if statusErr := r.patchStatus(ctx, s, before); err == nil {
			err = statusErr
		}
	}
	return reconcile.RequeueConflict(result, err)
}

func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.owner == nil || s.cluster == nil {
		// A new Machine may have the name of the former owner.
		if s.mismatch != "" && hostFenced(s) {
			return ctrl.Result{}, r.releaseFencedHost(ctx, s)
		}
		return ctrl.Result{}, nil
	}
	if err := r.ensureFinalizer(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if hostFenced(s) {
		return ctrl.Result{}, r.releaseFencedHost(ctx, s)
	}
	if hostReleased(s) {
		return ctrl.Result{}, r.deleteReleased(ctx, s)
	}
	if s.machine.Spec.HostRef == nil && !wanted(s).MayClaim() {
		return ctrl.Result{}, nil
	}
	r.markProvisioned(s)
	bound, result, err := r.reconcileClaim(ctx, s)
	if err != nil {
		return result, err
	}
	if err := r.skipRemediation(ctx, s); err != nil || !bound {
		return result, err
	}
	if err := r.blockMoveAgain(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if err := prepareHost(ctx, r.Client, s); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.observe(ctx, s)
}

func infrastructureProvisioned(cluster *clusterv1.Cluster) bool {
	p := cluster.Status.Initialization.InfrastructureProvisioned
	return p != nil && *p
}

func paused(s *scope) bool {
	return reconcile.IsPaused(s.cluster, s.machine, s.owner != nil || s.mismatch != "")
}

// read reads the objects that belong to s.machine. The owner reference alone proves
// nothing, so the Machine has to name s.machine, too (docs/adr/0044).
func read(ctx context.Context, c client.Client, s *scope) error {
	owner, err := util.GetOwnerMachine(ctx, c, s.machine.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting owner Machine: %w", err)
	}
	if owner != nil {
		if s.mismatch = ownership.InfraMachineMismatch(s.machine, owner); s.mismatch == "" {
			s.owner = owner
		}
	}
	namespace := s.machine.Namespace
	if s.owner != nil {
		if s.release, err = release.Get(ctx, c, namespace, s.owner.Spec.Version); err != nil {
			return err
		}
	}
	if s.cluster, err = reconcile.Get(ctx, c, namespace, clusterName(s), &clusterv1.Cluster{}); err != nil {
		return fmt.Errorf("getting Cluster: %w", err)
	}
	if s.cluster != nil {
		s.infraCluster, err = reconcile.Get(ctx, c, namespace, s.cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{})
		if err != nil {
			return fmt.Errorf("getting ElementalCluster: %w", err)
		}
		// The Cluster may name an object of another kind.
		if s.infraCluster != nil && !ownership.NamesInfraCluster(s.cluster, s.infraCluster) {
			s.infraCluster = nil
		}
	}
	if ref := s.machine.Spec.HostRef; ref != nil {
		if s.host, err = reconcile.Get(ctx, c, namespace, ref.Name, &infrav1.ElementalHost{}); err != nil {
			return fmt.Errorf("getting ElementalHost: %w", err)
		}
	}
	return nil
}

// clusterName returns the name of the machine's Cluster: the owner's, which can't
// change. Without an owner it is the label's.
func clusterName(s *scope) string {
	if s.owner != nil {
		return s.owner.Spec.ClusterName
	}
	return s.machine.Labels[clusterv1.ClusterNameLabel]
}

// machineName returns the name of the owner Machine, also if it no longer exists.
func machineName(s *scope) string {
	if s.owner != nil {
		return s.owner.Name
	}
	for _, ref := range s.machine.OwnerReferences {
		if ref.Kind == "Machine" {
			return ref.Name
		}
	}
	return s.machine.Name
}

func logger(ctx context.Context, s *scope) klog.Logger {
	log := ctrl.LoggerFrom(ctx)
	if s.owner != nil {
		log = log.WithValues("Machine", klog.KObj(s.owner))
	}
	if s.cluster != nil {
		log = log.WithValues("Cluster", klog.KObj(s.cluster))
	}
	if s.machine.Spec.HostRef != nil {
		log = log.WithValues("ElementalHost", klog.KRef(s.machine.Namespace, s.machine.Spec.HostRef.Name))
	}
	return log
}

// Cluster API's finalizers.EnsureFinalizer sets no optimistic lock.
func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) error {
	if controllerutil.ContainsFinalizer(s.machine, infrav1.MachineFinalizer) {
		return nil
	}
	return r.patchSpec(ctx, s, "adding finalizer", func(m *infrav1.ElementalMachine) {
		controllerutil.AddFinalizer(m, infrav1.MachineFinalizer)
	})
}

func (r *Reconciler) patchSpec(ctx context.Context, s *scope, doing string, change func(*infrav1.ElementalMachine)) error {
	return reconcile.PatchSpec(ctx, r.Client, s.machine, statusOf, doing, change)
}

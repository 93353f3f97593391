package machine

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;clusters/status;machines/status,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles ElementalMachines. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache, where a stale answer could cost a host.
	APIReader client.Reader
	// Recorder records Events on ElementalMachines.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Selectors compiles the machines' selectors; nil: each time anew.
	Selectors *selector.Compiler
	// Nominations are shared with the reconciler of ElementalClusters; nil: workers may
	// choose the same host, and all but one choose again.
	Nominations *placement.Nominations
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	// offers are the hosts that may be had; nil: they are listed each time.
	offers       *placement.Pool
	waiting      waitlist
	explanations explanations
}

// scope is what one reconcile has read and found out. It has no methods that
// read or write.
type scope struct {
	machine *infrav1.ElementalMachine
	// owner is the Machine; nil while Cluster API has not yet set it.
	owner *clusterv1.Machine
	// cluster is nil when it does not exist.
	cluster *clusterv1.Cluster
	// infraCluster is nil when it does not exist.
	infraCluster *infrav1.ElementalCluster
	// host is the one in spec.hostRef; nil when there is none.
	host *infrav1.ElementalHost
	// noHost says why no host could be chosen.
	noHost string
	// hostLost says why the chosen host can't be used any more.
	hostLost string
	// silent is true when a machine was let go without its host being reset.
	silent bool
	// waits is true when the machine looks for a host and has none.
	waits bool
}

// Reconcile brings one ElementalMachine a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	machine := &infrav1.ElementalMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		if apierrors.IsNotFound(err) {
			r.waiting.remove(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.watches(machine) {
		// It may have been ours.
		r.waiting.remove(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	s := &scope{machine: machine}
	before := machine.Status.DeepCopy()
	if err := r.read(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		// It waits on after an error.
		if !s.waits && reterr == nil {
			r.waiting.remove(req.NamespacedName)
		}
	}()
	ctx = ctrl.LoggerInto(ctx, logger(ctx, s))

	if paused(s) {
		return ctrl.Result{}, r.patchStatus(ctx, s, before)
	}
	step := r.reconcileNormal
	if !machine.DeletionTimestamp.IsZero() {
		step = r.reconcileDelete
	}
	result, err := step(ctx, s)
	if apierrors.IsConflict(err) {
		// Somebody was quicker or the cache is behind; look again.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	if !machine.DeletionTimestamp.IsZero() && len(machine.Finalizers) == 0 {
		return result, err
	}
	if statusErr := r.patchStatus(ctx, s, before); statusErr != nil && err == nil {
		if apierrors.IsConflict(statusErr) {
			return ctrl.Result{RequeueAfter: conflictDelay}, nil
		}
		err = statusErr
	}
	return result, err
}

func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.owner == nil || s.cluster == nil {
		return ctrl.Result{}, nil
	}
	if err := r.ensureFinalizer(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if fenced(s) {
		return ctrl.Result{}, r.giveUp(ctx, s)
	}
	if s.machine.Spec.HostRef == nil && !mayClaim(s) {
		return ctrl.Result{}, nil
	}
	r.markProvisioned(s)
	bound, result, err := r.claim(ctx, s)
	if err != nil {
		return result, err
	}
	if err := r.skipRemediation(ctx, s); err != nil || !bound {
		return result, err
	}
	return ctrl.Result{}, r.observe(ctx, s)
}

// mayClaim keeps to the order of the InfraMachine contract: a host is claimed
// once it can be used at once, never hoarded.
func mayClaim(s *scope) bool {
	return infrastructureProvisioned(s.cluster) &&
		s.owner.Spec.Bootstrap.DataSecretName != nil &&
		s.owner.DeletionTimestamp.IsZero()
}

func infrastructureProvisioned(cluster *clusterv1.Cluster) bool {
	p := cluster.Status.Initialization.InfrastructureProvisioned
	return p != nil && *p
}

// paused treats a cluster that is referred to but missing as paused: on the
// target of a move objects arrive one by one.
func paused(s *scope) bool {
	if s.cluster == nil {
		return annotations.HasPaused(s.machine) || (s.owner != nil && s.machine.DeletionTimestamp.IsZero())
	}
	return annotations.IsPaused(s.cluster, s.machine)
}

func (r *Reconciler) read(ctx context.Context, s *scope) error {
	var err error
	if s.owner, err = util.GetOwnerMachine(ctx, r.Client, s.machine.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting owner Machine: %w", err)
	}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: clusterName(s)}
	if key.Name != "" {
		cluster := &clusterv1.Cluster{}
		switch err := r.Client.Get(ctx, key, cluster); {
		case err == nil:
			s.cluster = cluster
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("getting Cluster: %w", err)
		}
	}
	if s.cluster != nil && s.cluster.Spec.InfrastructureRef.Name != "" {
		infraCluster := &infrav1.ElementalCluster{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: s.cluster.Spec.InfrastructureRef.Name}, infraCluster); {
		case err == nil:
			s.infraCluster = infraCluster
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("getting ElementalCluster: %w", err)
		}
	}
	if ref := s.machine.Spec.HostRef; ref != nil {
		host := &infrav1.ElementalHost{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, host); {
		case err == nil:
			s.host = host
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("getting ElementalHost: %w", err)
		}
	}
	return nil
}

// clusterName is the name of the machine's Cluster. The label is the contract's;
// the owner has it too while the label is not yet there.
func clusterName(s *scope) string {
	if name := s.machine.Labels[clusterv1.ClusterNameLabel]; name != "" || s.owner == nil {
		return name
	}
	return s.owner.Spec.ClusterName
}

// machineName is the Machine's name.
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

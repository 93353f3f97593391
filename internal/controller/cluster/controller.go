package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// conflictDelay lets the cache catch up with a write that won against ours.
	conflictDelay = 100 * time.Millisecond
	// controlPlaneDelay is how often a cluster looks for a control plane or
	// template that is not there yet; neither is watched.
	controlPlaneDelay = 10 * time.Second
	// nominatedDelay is for clusters that found all suitable hosts about to be
	// claimed by others; some of those claims may yet fail.
	nominatedDelay = time.Second
)

// Reconciler reconciles ElementalClusters. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	// Recorder records Events on ElementalClusters and Clusters.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Metrics counts moves; nil counts nothing.
	Metrics *Metrics
	// Selectors compiles control planes' selectors; nil: each time anew.
	Selectors *selector.Compiler
	// Nominations are shared with the reconciler of ElementalMachines; nil: clusters may
	// choose the same host, and all but one choose again.
	Nominations *placement.Nominations
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	// recording has clusters take turns in making virtual IP addresses theirs.
	recording sync.Mutex
	// sought is what clusters have asked for that found no host for their endpoint.
	sought memory[placement.Request]
	// spread are the failure domains that clusters have found.
	spread memory[spread]
}

// scope is what one reconcile has read and found out. It has no methods that
// read or write.
type scope struct {
	infraCluster *infrav1.ElementalCluster
	// cluster is nil while Cluster API has not yet set the owner.
	cluster *clusterv1.Cluster
	// endpoint is what is the case with the endpoint.
	endpoint endpointState
	// followed is what still uses a former endpoint; nil where the endpoint is not a
	// host's address in use.
	followed *followedState
	// hooks says what becomes of the endpoint's hook on Machines, by their names;
	// those that it does not name have none.
	hooks map[string]hook
	// stranded says why a Machine is let go with the endpoint.
	stranded string
}

// endpointState is the outcome of reconcileEndpoint.
type endpointState struct {
	ready bool
	// provided: there is one, whether it answers or not.
	provided        bool
	reason, message string
}

// followedState says what still uses a former endpoint.
type followedState struct {
	remaining []string
}

// Reconcile brings one ElementalCluster a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infraCluster := &infrav1.ElementalCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infraCluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilter != "" && !labels.HasWatchLabel(infraCluster, r.WatchFilter) {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	// Somebody else manages it: neither spec nor status is ours (contract
	// InfraCluster, "externally managed").
	if annotations.IsExternallyManaged(infraCluster) {
		return ctrl.Result{}, nil
	}
	s := &scope{infraCluster: infraCluster}
	before := infraCluster.Status.DeepCopy()
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infraCluster.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("getting owner Cluster: %w", err)
	}
	s.cluster = cluster
	if cluster != nil {
		ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KObj(cluster)))
	}
	if paused(s) {
		return ctrl.Result{}, r.patchStatus(ctx, s, before)
	}
	step := r.reconcileNormal
	if !infraCluster.DeletionTimestamp.IsZero() {
		step = r.reconcileDelete
	}
	result, err := step(ctx, s)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	if !infraCluster.DeletionTimestamp.IsZero() && len(infraCluster.Finalizers) == 0 {
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

// forget forgets what a cluster that is gone has found out.
func (r *Reconciler) forget(cluster types.NamespacedName) {
	r.sought.forget(cluster)
	r.spread.forget(cluster)
}

// paused treats a missing owner as paused where there once was one: on the
// target of a move objects arrive one by one.
func paused(s *scope) bool {
	if s.cluster == nil {
		return annotations.HasPaused(s.infraCluster) ||
			(len(s.infraCluster.OwnerReferences) > 0 && s.infraCluster.DeletionTimestamp.IsZero())
	}
	return annotations.IsPaused(s.cluster, s.infraCluster)
}

func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.cluster == nil {
		s.endpoint = endpointState{reason: infrav1.WaitingForOwnerReason, message: "Waiting for Cluster API to set the owner Cluster"}
		return ctrl.Result{}, nil
	}
	if !controllerutil.ContainsFinalizer(s.infraCluster, infrav1.ClusterFinalizer) {
		err := r.patchSpec(ctx, s, "adding finalizer", func(c *infrav1.ElementalCluster) {
			controllerutil.AddFinalizer(c, infrav1.ClusterFinalizer)
		})
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	var result ctrl.Result
	for _, step := range []func(context.Context, *scope) (ctrl.Result, error){r.reconcileEndpoint, r.reconcileHooks, r.reconcileDomains} {
		next, err := step(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		result = util.LowestNonZeroResult(result, next)
	}
	if s.endpoint.ready || s.endpoint.provided {
		s.infraCluster.Status.Initialization.Provisioned = new(true)
	}
	return result, nil
}

// reconcileDelete gives reservations back and takes hooks off; hosts that machines
// have are the machines' to release.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.infraCluster, infrav1.ClusterFinalizer) {
		return ctrl.Result{}, nil
	}
	_, moved := s.infraCluster.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	if !moved {
		if err := r.unreserve(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.releaseAddress(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
		if name := clusterName(s); name != "" {
			if err := r.setHooks(ctx, s, name); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	err := r.patchSpec(ctx, s, "removing finalizer", func(c *infrav1.ElementalCluster) {
		controllerutil.RemoveFinalizer(c, infrav1.ClusterFinalizer)
	})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// clusterName is the Cluster's name; blank if nothing tells.
func clusterName(s *scope) string {
	if s.cluster != nil {
		return s.cluster.Name
	}
	return s.infraCluster.Labels[clusterv1.ClusterNameLabel]
}

// patchSpec changes spec or metadata, if nobody else has changed the object
// since it was read. status in memory is kept.
func (r *Reconciler) patchSpec(ctx context.Context, s *scope, doing string, change func(*infrav1.ElementalCluster)) error {
	before := s.infraCluster.DeepCopy()
	after := s.infraCluster.DeepCopy()
	change(after)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	after.Status = s.infraCluster.Status
	*s.infraCluster = *after
	return nil
}

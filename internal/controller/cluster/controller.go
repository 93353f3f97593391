package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/failuredomain"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshot"
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
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

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
	// Metrics counts moves of endpoints and snapshots of etcd; nil counts nothing.
	Metrics *Metrics
	// Selectors caches the compiled host selectors of control planes; nil compiles them
	// each time.
	Selectors *selector.Compiler
	// Nominations are shared with the reconciler of ElementalMachines. If nil, several
	// clusters may choose the same host; all but one have to choose again.
	Nominations *placement.Nominations
	// Contacts asks hosts whether they still reach an endpoint. If nil, no endpoint moves
	// because its host is dead.
	Contacts endpoint.Contacts
	// Images says which images of kube-vip hosts may run.
	Images kubevip.ImagePolicy
	// Tunnels says how clients reach the gateway to clusters whose endpoint is of type
	// Tunnel.
	Tunnels tunnel.Settings
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	// publishLock serializes the publication of virtual IP addresses.
	publishLock sync.Mutex
	// searches are the constraints of clusters that found no host for their endpoint.
	searches scope.Cache[placement.Constraints]
	// domains are the failure domains that were found for each cluster.
	domains failuredomain.Cache
}

// run is one reconcile: its objects and the outcomes of its phases.
type run struct {
	scope.Scope

	// owner is the Cluster that the owner reference names; nil if it does not exist.
	owner *clusterv1.Cluster
	// mismatch says why the owner is not the Cluster that the object belongs to; blank if
	// it is, or does not exist.
	mismatch string
	endpoint scope.Endpoint
	// tunnel is the condition TunnelReady; nil unless there is an endpoint of type Tunnel, or
	// the cluster has tunnels for its users.
	tunnel *metav1.Condition
	// progress of the endpoint's last move; nil if the endpoint is not a host's address
	// in use.
	progress *failover.Progress
	// hooks says which Machines carry the endpoint's hook.
	hooks endpoint.HookPlan
	// snapshots is what was decided on snapshots of etcd; empty without spec.etcdSnapshots.
	snapshots snapshot.Decision
}

// Reconcile reconciles one ElementalCluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infraCluster := &infrav1.ElementalCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infraCluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.dropCaches(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(infraCluster, r.WatchFilter) {
		r.dropCaches(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	s := &run{Scope: scope.Scope{InfraCluster: infraCluster}}
	before := infraCluster.Status.DeepCopy()
	if err := r.readCluster(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if s.owner != nil {
		ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KObj(s.owner)))
	}
	// Neither spec nor status of an externally managed object is ours (contract
	// InfraCluster).
	if annotations.IsExternallyManaged(infraCluster) {
		r.dropCaches(req.NamespacedName)
		if isPaused(s) {
			return ctrl.Result{}, nil
		}
		return reconcile.RequeueConflict(ctrl.Result{}, r.handOver(ctx, s))
	}
	if isPaused(s) {
		return ctrl.Result{}, r.patchStatus(ctx, s, before)
	}
	phases := r.reconcileNormal
	if !infraCluster.DeletionTimestamp.IsZero() {
		phases = r.reconcileDelete
	}
	result, err := phases(ctx, s)
	if apierrors.IsConflict(err) {
		return reconcile.RequeueConflict(result, err)
	}
	if !infraCluster.DeletionTimestamp.IsZero() && len(infraCluster.Finalizers) == 0 {
		return result, err
	}
	if statusErr := r.patchStatus(ctx, s, before); statusErr != nil && err == nil {
		return reconcile.RequeueConflict(result, statusErr)
	}
	return result, err
}

// readCluster reads the owner Cluster. The owner reference alone proves nothing: whoever
// may create an ElementalCluster may name any owner in it. So the Cluster has to name the
// object, too, before the object influences anything (docs/adr/0044).
func (r *Reconciler) readCluster(ctx context.Context, s *run) error {
	var err error
	if s.owner, err = util.GetOwnerCluster(ctx, r.Client, s.InfraCluster.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting owner Cluster: %w", err)
	}
	if s.owner != nil {
		if s.mismatch = ownership.InfraClusterMismatch(s.InfraCluster, s.owner); s.mismatch == "" {
			s.Cluster = s.owner
			return nil
		}
	}
	// An object that lost its reference leaves nothing behind when it is deleted. The label
	// proves nothing either.
	name := s.InfraCluster.Labels[clusterv1.ClusterNameLabel]
	labelled, err := reconcile.Get(ctx, r.Client, s.InfraCluster.Namespace, name, &clusterv1.Cluster{})
	if err != nil {
		return fmt.Errorf("getting Cluster: %w", err)
	}
	if labelled == nil || ownership.NamesInfraCluster(labelled, s.InfraCluster) {
		s.FormerCluster = name
	}
	return nil
}

// dropCaches removes what is cached of a cluster.
func (r *Reconciler) dropCaches(cluster types.NamespacedName) {
	r.searches.Delete(cluster)
	r.domains.Delete(cluster)
}

// isPaused reports whether the cluster is paused. A missing owner counts as paused. An
// owner that names another object does not count: its changes trigger no reconcile.
func isPaused(s *run) bool {
	if s.mismatch != "" && s.FormerCluster == "" {
		return annotations.HasPaused(s.InfraCluster)
	}
	return reconcile.IsPaused(s.owner, s.InfraCluster, len(s.InfraCluster.OwnerReferences) > 0)
}

func (r *Reconciler) reconcileNormal(ctx context.Context, s *run) (ctrl.Result, error) {
	switch {
	case s.mismatch != "":
		// A change of the Cluster's reference or of the object triggers another reconcile.
		r.dropCaches(client.ObjectKeyFromObject(s.InfraCluster))
		s.endpoint = scope.Endpoint{Reason: infrav1.ReferenceMismatchReason, Message: s.mismatch}
		return ctrl.Result{}, nil
	case s.Cluster == nil:
		s.endpoint = scope.Endpoint{Reason: infrav1.WaitingForOwnerReason, Message: "Waiting for Cluster API to set the owner Cluster"}
		return ctrl.Result{}, nil
	}
	if !controllerutil.ContainsFinalizer(s.InfraCluster, infrav1.ClusterFinalizer) {
		err := scope.PatchSpec(ctx, r.Client, &s.Scope, "adding finalizer", func(c *infrav1.ElementalCluster) {
			controllerutil.AddFinalizer(c, infrav1.ClusterFinalizer)
		})
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	for _, phase := range []func(context.Context, *run) error{
		r.reconcileEndpoint, r.reconcileTunnels, r.reconcileHooks, r.reconcileFailureDomains, r.reconcileSnapshots,
	} {
		if err := phase(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	if s.endpoint.Ready || s.endpoint.Published {
		s.InfraCluster.Status.Initialization.Provisioned = new(true)
	}
	return ctrl.Result{RequeueAfter: r.requeueAfter(s)}, nil
}

// requeueAfter is when to reconcile again without a change; zero: never.
func (r *Reconciler) requeueAfter(s *run) time.Duration {
	after := s.endpoint.RequeueAfter
	if at := s.snapshots.RecheckAt; !at.IsZero() {
		if until := max(at.Sub(r.Clock.Now()), time.Millisecond); after == 0 || until < after {
			after = until
		}
	}
	return after
}

// reconcileDelete ends reservations, removes hooks and releases the virtual IP address.
// Hosts that machines have claimed are released by the machines. An address of an IP pool
// is not released while hosts announce it: another cluster would get it.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *run) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.InfraCluster, infrav1.ClusterFinalizer) {
		return ctrl.Result{}, nil
	}
	if _, moved := s.InfraCluster.Annotations[clusterctlv1.DeleteForMoveAnnotation]; !moved {
		if err := r.hostEndpoint().Unreserve(ctx, &s.Scope); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.reconcileHooks(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
		waiting, err := r.vipEndpoint().Release(ctx, &s.Scope)
		if err != nil {
			return ctrl.Result{}, err
		}
		if waiting != nil {
			s.endpoint = *waiting
			return ctrl.Result{}, nil
		}
	}
	return ctrl.Result{}, r.removeFinalizer(ctx, s)
}

// handOver gives up an object that became externally managed: it ends reservations and
// removes hooks and the finalizer. Without that Machines could not be deleted. A virtual
// IP address stays allocated, because the cluster still uses it; the garbage collector
// deletes its IPAddressClaim with the object.
func (r *Reconciler) handOver(ctx context.Context, s *run) error {
	if !controllerutil.ContainsFinalizer(s.InfraCluster, infrav1.ClusterFinalizer) {
		return nil
	}
	if err := r.hostEndpoint().Unreserve(ctx, &s.Scope); err != nil {
		return err
	}
	if err := r.reconcileHooks(ctx, s); err != nil {
		return err
	}
	return r.removeFinalizer(ctx, s)
}

func (r *Reconciler) removeFinalizer(ctx context.Context, s *run) error {
	return client.IgnoreNotFound(scope.PatchSpec(ctx, r.Client, &s.Scope, "removing finalizer", func(c *infrav1.ElementalCluster) {
		controllerutil.RemoveFinalizer(c, infrav1.ClusterFinalizer)
	}))
}

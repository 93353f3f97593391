package access

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// minInterval is how long after a look at a workload cluster the next one follows, at
	// least; with jitter a minute at most.
	minInterval = 45 * time.Second
	jitter      = 1.0 / 3
	// timeout bounds one look.
	timeout = 30 * time.Second
)

// Workloads connects to workload clusters.
type Workloads interface {
	// Admin returns a client with the rights of an administrator. It fails if there is no
	// way to the cluster yet.
	Admin(ctx context.Context, cluster types.NamespacedName) (client.Client, error)
}

// Reconciler reconciles spec.access of ElementalClusters. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder records Events on ElementalClusters.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock     clock.PassiveClock
	Workloads Workloads
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must
	// have; blank for all.
	WatchFilter string
}

func statusOf(c *infrav1.ElementalCluster) *infrav1.ElementalClusterStatus { return &c.Status }

// Reconcile reconciles the access to one cluster. It needs no finalizer: the bindings go with
// the workload cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.ElementalCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(infra, r.WatchFilter) || annotations.IsExternallyManaged(infra) || !infra.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := infra.Status.DeepCopy()
	if infra.Spec.Access == nil && !isMarked(infra) && meta.FindStatusCondition(before.Conditions, infrav1.AccessReadyCondition) == nil {
		return ctrl.Result{}, nil
	}
	cluster, err := r.owner(ctx, infra)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil || !cluster.DeletionTimestamp.IsZero() || annotations.IsPaused(cluster, infra) {
		return ctrl.Result{}, nil
	}
	out, err := r.bind(ctx, infra, cluster)
	was := meta.FindStatusCondition(before.Conditions, infrav1.AccessReadyCondition)
	// Now, because the next reconcile finds nothing to put back, whatever becomes of this one.
	r.recordRestored(infra, out.written, was)
	if err != nil {
		return reconcile.RequeueConflict(ctrl.Result{}, err)
	}
	if out.condition == nil {
		meta.RemoveStatusCondition(&infra.Status.Conditions, infrav1.AccessReadyCondition)
	} else {
		reconcile.SetConditions(&infra.Status.Conditions, infra.Generation, r.Clock.Now(), *out.condition)
	}
	_, err = reconcile.PatchStatus(ctx, r.Client, infra, statusOf, before)
	if err == nil {
		r.recordEvents(infra, out.condition, was)
	}
	return reconcile.RequeueConflict(ctrl.Result{RequeueAfter: out.requeueAfter}, err)
}

// owner returns the Cluster that the ElementalCluster belongs to; nil if they don't refer to
// each other, which the condition Ready says.
func (r *Reconciler) owner(ctx context.Context, infra *infrav1.ElementalCluster) (*clusterv1.Cluster, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if err = client.IgnoreNotFound(err); err != nil {
		return nil, fmt.Errorf("getting owner Cluster: %w", err)
	}
	if cluster == nil || !ownership.IsInfraCluster(infra, cluster) {
		return nil, nil
	}
	return cluster, nil
}

// outcome is the outcome of bind.
type outcome struct {
	// condition is AccessReady; nil to remove it.
	condition *metav1.Condition
	// written are the bindings that were created or changed.
	written []string
	// requeueAfter is zero if only an event can change anything.
	requeueAfter time.Duration
}

// bind makes the workload cluster have the bindings of spec, as far as it can be reached. It
// returns an error only if it has to be called again at once.
func (r *Reconciler) bind(ctx context.Context, infra *infrav1.ElementalCluster, cluster *clusterv1.Cluster) (outcome, error) {
	tunnels := meta.FindStatusCondition(infra.Status.Conditions, infrav1.TunnelReadyCondition)
	initialized := cluster.Status.Initialization.ControlPlaneInitialized
	switch {
	case initialized == nil || !*initialized:
		if infra.Spec.Access == nil && !isMarked(infra) {
			return outcome{}, nil // there never was a binding
		}
		return outcome{condition: notReady(infrav1.WaitingForControlPlaneReason, "The control plane is not initialized yet")}, nil
	case tunnels == nil:
		return outcome{condition: notReady(infrav1.ClusterUnreachableReason, "Waiting for the condition TunnelReady")}, nil
	case tunnels.Status != metav1.ConditionTrue:
		return outcome{condition: notReady(infrav1.ClusterUnreachableReason, "The bindings are unknown while TunnelReady is False: "+tunnels.Message)}, nil
	}
	if infra.Spec.Access != nil {
		if err := r.mark(ctx, infra, true); err != nil {
			return outcome{}, err
		}
	}
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := r.look(looking, client.ObjectKeyFromObject(cluster), wanted(infra.Spec.Access))
	if apierrors.IsConflict(err) {
		return outcome{written: found.written}, err
	}
	out := outcome{condition: conditionOf(found, err), written: found.written, requeueAfter: wait.Jitter(minInterval, jitter)}
	if infra.Spec.Access == nil && err == nil {
		return outcome{}, r.mark(ctx, infra, false)
	}
	return out, nil
}

// isMarked reports whether the workload cluster may have bindings.
func isMarked(infra *infrav1.ElementalCluster) bool {
	_, marked := infra.Annotations[infrav1.AccessBindingsAnnotation]
	return marked
}

// mark writes whether the workload cluster may have bindings: before it gets the first one, and after
// the last one is deleted.
func (r *Reconciler) mark(ctx context.Context, infra *infrav1.ElementalCluster, hasBindings bool) error {
	if isMarked(infra) == hasBindings {
		return nil
	}
	return reconcile.PatchSpec(ctx, r.Client, infra, statusOf, "marking ElementalCluster "+infra.Name, func(c *infrav1.ElementalCluster) {
		if hasBindings {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, infrav1.AccessBindingsAnnotation, "")
		} else {
			delete(c.Annotations, infrav1.AccessBindingsAnnotation)
		}
	})
}

// look applies the bindings to the workload cluster.
func (r *Reconciler) look(ctx context.Context, cluster types.NamespacedName, bindings []binding) (findings, error) {
	workload, err := r.Workloads.Admin(ctx, cluster)
	if err != nil {
		return findings{}, err
	}
	return apply(ctx, workload, bindings)
}

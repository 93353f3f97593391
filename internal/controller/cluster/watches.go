package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// SetupWithManager registers the reconciler and its watches. The indexes of
// package index must have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalcluster")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalcluster").
		For(&infrav1.ElementalCluster{}).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("ElementalCluster"), r.Client, &infrav1.ElementalCluster{}))).
		Owns(&ipamv1.IPAddressClaim{}).
		Watches(&infrav1.ElementalHost{}, r.hostHandler()).
		Watches(&infrav1.ElementalHost{}, r.hostChanges()).
		Watches(&clusterv1.Machine{}, r.machineHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// workersDelay gathers what happens to workers' hosts. The endpoint is not there, and
// a cluster with thousands of them would be looked at all the time while they come.
const workersDelay = time.Second

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// hostHandler wakes the cluster that has a host when what its endpoint depends on
// changes, and the clusters that look for a host when one may be had.
func (r *Reconciler) hostHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				r.wakeClaimant(ctx, host, q)
				r.wakeSeeking(ctx, host, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*infrav1.ElementalHost)
			after, ok2 := e.ObjectNew.(*infrav1.ElementalHost)
			if !ok1 || !ok2 || before.ResourceVersion == after.ResourceVersion {
				return
			}
			if concernsEndpoint(before, after) {
				if c := before.Spec.Claim; c != nil && (after.Spec.Claim == nil || after.Spec.Claim.ClusterName != c.ClusterName) {
					r.wakeClaimant(ctx, before, q)
				}
				r.wakeClaimant(ctx, after, q)
			}
			r.wakeSeeking(ctx, after, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				r.wakeClaimant(ctx, host, q)
			}
		},
	}
}

// concernsEndpoint leaves out what a host reports of itself otherwise: progress of
// its operations, its agent, its disks.
func concernsEndpoint(before, after *infrav1.ElementalHost) bool {
	return reserved(before) || reserved(after) ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Status.Endpoint, after.Status.Endpoint) ||
		!equality.Semantic.DeepEqual(before.Status.Connection, after.Status.Connection) ||
		!equality.Semantic.DeepEqual(before.Status.Addresses, after.Status.Addresses) ||
		!equality.Semantic.DeepEqual(states(before), states(after))
}

// reserved hosts are exchanged for whatever keeps them from use.
func reserved(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim != nil && host.Spec.Claim.Phase == infrav1.ClaimReserved
}

// states are those of the host's operations, without their steps.
func states(host *infrav1.ElementalHost) map[string]infrav1.OperationState {
	out := map[string]infrav1.OperationState{}
	for _, op := range host.Status.Operations {
		out[string(op.Type)+" "+op.ID] = op.State
	}
	return out
}

// wakeClaimant wakes the cluster that has claimed the host, soon if it is a worker's.
func (r *Reconciler) wakeClaimant(ctx context.Context, host *infrav1.ElementalHost, q queue) {
	claim := host.Spec.Claim
	switch {
	case claim == nil:
	case claim.Role == infrav1.RoleWorker:
		r.wakeCluster(ctx, host.Namespace, claim.ClusterName, func(request ctrl.Request) { q.AddAfter(request, workersDelay) })
	default:
		r.wakeCluster(ctx, host.Namespace, claim.ClusterName, q.Add)
	}
}

func (r *Reconciler) wakeCluster(ctx context.Context, namespace, name string, add func(ctrl.Request)) {
	for _, c := range r.indexed(ctx, namespace, index.ClusterByName, name) {
		add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
}

// indexed returns the ElementalClusters that an index has under the value. They are
// the cache's own and must not be changed.
func (r *Reconciler) indexed(ctx context.Context, namespace, field, value string) []*infrav1.ElementalCluster {
	list := &infrav1.ElementalClusterList{}
	err := r.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalClusters", "index", field)
		return nil
	}
	clusters := make([]*infrav1.ElementalCluster, len(list.Items))
	for i := range list.Items {
		clusters[i] = &list.Items[i]
	}
	return clusters
}

// wakeSeeking wakes the clusters that look for a host to reserve, and the one whose
// choice this is, if the host is nobody's.
func (r *Reconciler) wakeSeeking(ctx context.Context, host *infrav1.ElementalHost, q queue) {
	if host.Spec.Claim != nil {
		return
	}
	for _, value := range []string{index.Seeking, host.Name} {
		for _, c := range r.indexed(ctx, host.Namespace, index.ClusterByEndpointHost, value) {
			q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
}

// machineHandler wakes the cluster of a Machine that begins to go, is gone, or
// whose hook somebody changed.
func (r *Reconciler) machineHandler() handler.EventHandler {
	wake := func(ctx context.Context, o client.Object, q queue) {
		if m, ok := o.(*clusterv1.Machine); ok {
			r.wakeCluster(ctx, m.Namespace, m.Spec.ClusterName, q.Add)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*clusterv1.Machine)
			after, ok2 := e.ObjectNew.(*clusterv1.Machine)
			if ok1 && ok2 && (before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || hasHook(before) != hasHook(after)) {
				wake(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

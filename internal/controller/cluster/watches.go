package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// SetupWithManager registers the reconciler and its watches. The indexes of
// package index must have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalcluster")
	filter := builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter))
	// Hosts that are another manager's are heard of too where a failure domain may
	// rest on one that was ours.
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalcluster").
		For(&infrav1.ElementalCluster{}, filter).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("ElementalCluster"), r.Client, &infrav1.ElementalCluster{})), filter).
		Owns(&ipamv1.IPAddressClaim{}, filter).
		Watches(&infrav1.ElementalHost{}, r.hostHandler(), filter).
		Watches(&infrav1.ElementalHost{}, r.hostChanges()).
		Watches(&clusterv1.Machine{}, r.machineHandler(), filter).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// gatherDelay gathers what happens to hosts that the endpoint is not on: those of
// workers, and those that nobody has. They come by the thousand, and a cluster would
// be looked at all the time while they do.
const gatherDelay = time.Second

// accountDelay is how long after a change of a host that a cluster can't have the
// cluster looks for one again, to say what is the case with all of them.
const accountDelay = 30 * time.Second

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// hostHandler wakes the cluster that has a host, or chose it, when what its endpoint
// depends on changes, and the clusters that look for a host when one may be had.
func (r *Reconciler) hostHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				r.wakeClaimant(ctx, host, q)
				r.wakeChooser(ctx, host, q)
				r.wakeSeeking(ctx, nil, host, q)
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
			r.wakeChooser(ctx, after, q)
			if concernsSeeking(before, after) {
				r.wakeSeeking(ctx, before, after, q)
			}
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
		r.wakeCluster(ctx, host.Namespace, claim.ClusterName, func(request ctrl.Request) { q.AddAfter(request, gatherDelay) })
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

// wakeChooser wakes the cluster whose choice the host is, if it is not yet reserved.
func (r *Reconciler) wakeChooser(ctx context.Context, host *infrav1.ElementalHost, q queue) {
	if host.Spec.Claim != nil {
		return
	}
	for _, c := range r.indexed(ctx, host.Namespace, index.ClusterByEndpointHost, host.Name) {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
}

// wakeSeeking wakes the clusters that look for a host to reserve, if the host is
// nobody's: soon where it is, or was, of the kind that the cluster looks for. Each will
// look at all hosts of the namespace.
func (r *Reconciler) wakeSeeking(ctx context.Context, was, is *infrav1.ElementalHost, q queue) {
	if is.Spec.Claim != nil {
		return
	}
	for _, c := range r.indexed(ctx, is.Namespace, index.ClusterByEndpointHost, index.Seeking) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
		if r.soughtBy(ctx, request.NamespacedName, is) || (was != nil && r.soughtBy(ctx, request.NamespacedName, was)) {
			q.AddAfter(request, gatherDelay)
		} else {
			q.AddAfter(request, accountDelay)
		}
	}
}

// soughtBy reports whether the host may be of the kind that the cluster looks for.
func (r *Reconciler) soughtBy(ctx context.Context, cluster types.NamespacedName, host *infrav1.ElementalHost) bool {
	request, known := r.sought.recall(cluster)
	if !known {
		return true
	}
	why, matches := request.Again(ctx).Matches(host)
	return matches || why == placement.NotJudged
}

// concernsSeeking leaves out what neither makes a host that is nobody's fit for an
// endpoint, nor changes why it is not: its agent, its operations, its clock.
func concernsSeeking(before, after *infrav1.ElementalHost) bool {
	return hoststatus.Available(before).Reason() != hoststatus.Available(after).Reason() ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
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

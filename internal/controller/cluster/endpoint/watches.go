package endpoint

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// unsuitableDelay is how long after a change of an unsuitable host a searching cluster
// is reconciled, to count the reasons in its condition anew.
const unsuitableDelay = 30 * time.Second

// Watches enqueues clusters when a host or Machine changes that their endpoint depends
// on.
type Watches struct {
	Reader scope.Reader
	// Searches are the constraints of clusters that found no host to reserve.
	Searches *scope.Cache[placement.Constraints]
}

// Hosts enqueues the cluster that claimed or chose a host when the host changes in a
// way that concerns the endpoint, and the clusters that search a host to reserve.
func (w Watches) Hosts() handler.EventHandler {
	return reconcile.HostEvents(func(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
		switch {
		case before == nil:
			w.enqueueClaiming(ctx, after, q)
			w.enqueueChooser(ctx, after, q)
			w.enqueueSearching(ctx, nil, after, q)
		case after == nil:
			w.enqueueClaiming(ctx, before, q)
		default:
			w.enqueueUpdated(ctx, before, after, q)
		}
	})
}

func (w Watches) enqueueUpdated(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
	if concernsEndpoint(before, after) {
		if c := before.Spec.Claim; c != nil && (after.Spec.Claim == nil || after.Spec.Claim.ClusterName != c.ClusterName) {
			w.enqueueClaiming(ctx, before, q)
		}
		w.enqueueClaiming(ctx, after, q)
	}
	w.enqueueChooser(ctx, after, q)
	if concernsSearch(before, after) {
		w.enqueueSearching(ctx, before, after, q)
	}
}

// Machines enqueues the cluster of a Machine whose deletion starts or ends, or whose
// endpoint hook was added or removed.
func (w Watches) Machines() handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q reconcile.Queue) {
		if m, ok := o.(*clusterv1.Machine); ok {
			w.enqueueCluster(ctx, m.Namespace, m.Spec.ClusterName, q.Add)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q reconcile.Queue) {
			before, ok1 := e.ObjectOld.(*clusterv1.Machine)
			after, ok2 := e.ObjectNew.(*clusterv1.Machine)
			if ok1 && ok2 && (before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || hasHook(before) != hasHook(after)) {
				enqueue(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q reconcile.Queue) { enqueue(ctx, e.Object, q) },
	}
}

// concernsEndpoint reports whether the change of a claimed host may concern the
// endpoint or the cluster's snapshots of etcd. Progress of operations, disks and most of the agent do not.
func concernsEndpoint(before, after *infrav1.ElementalHost) bool {
	return isReserved(before) || isReserved(after) ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Status.Endpoint, after.Status.Endpoint) ||
		!equality.Semantic.DeepEqual(before.Status.EtcdSnapshots, after.Status.EtcdSnapshots) ||
		!equality.Semantic.DeepEqual(before.Status.Connection, after.Status.Connection) ||
		!equality.Semantic.DeepEqual(before.Status.Tunnel, after.Status.Tunnel) || tunnelhost.IsCapable(before) != tunnelhost.IsCapable(after) ||
		!equality.Semantic.DeepEqual(before.Status.Addresses, after.Status.Addresses) ||
		!equality.Semantic.DeepEqual(operationStates(before), operationStates(after))
}

// isReserved reports whether the host is reserved. Any change may make a reserved host
// unsuitable.
func isReserved(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim != nil && host.Spec.Claim.Phase == infrav1.ClaimReserved
}

// operationStates returns the states of the host's operations, without their steps.
func operationStates(host *infrav1.ElementalHost) map[string]infrav1.OperationState {
	out := map[string]infrav1.OperationState{}
	for _, op := range host.Status.Operations {
		out[string(op.Type)+" "+op.ID] = op.State
	}
	return out
}

// enqueueClaiming enqueues the cluster that claimed the host, with a delay for a worker.
func (w Watches) enqueueClaiming(ctx context.Context, host *infrav1.ElementalHost, q reconcile.Queue) {
	claim := host.Spec.Claim
	switch {
	case claim == nil:
	case claim.Role == infrav1.RoleWorker:
		w.enqueueCluster(ctx, host.Namespace, claim.ClusterName, func(request ctrl.Request) { q.AddAfter(request, scope.BatchDelay) })
	default:
		w.enqueueCluster(ctx, host.Namespace, claim.ClusterName, q.Add)
	}
}

func (w Watches) enqueueCluster(ctx context.Context, namespace, name string, add func(ctrl.Request)) {
	for _, c := range w.Reader.ClustersByIndex(ctx, namespace, index.ClusterByName, name) {
		add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
}

// enqueueChooser enqueues the cluster that chose the host and has not reserved it yet.
func (w Watches) enqueueChooser(ctx context.Context, host *infrav1.ElementalHost, q reconcile.Queue) {
	if host.Spec.Claim != nil {
		return
	}
	for _, c := range w.Reader.ClustersByIndex(ctx, host.Namespace, index.ClusterByEndpointHost, host.Name) {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
}

// enqueueSearching enqueues the clusters that search a host to reserve, if the host is
// free: soon if their constraints match the host before or after the change, else later.
// before is nil for a new host. Each of the clusters will list all hosts of the namespace.
func (w Watches) enqueueSearching(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
	if after.Spec.Claim != nil {
		return
	}
	for _, c := range w.Reader.ClustersByIndex(ctx, after.Namespace, index.ClusterByEndpointHost, index.Seeking) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
		if w.mayMatch(ctx, request.NamespacedName, after) || (before != nil && w.mayMatch(ctx, request.NamespacedName, before)) {
			q.AddAfter(request, scope.BatchDelay)
		} else {
			q.AddAfter(request, unsuitableDelay)
		}
	}
}

// mayMatch reports whether the host may match the constraints that the cluster searches
// with.
func (w Watches) mayMatch(ctx context.Context, cluster types.NamespacedName, host *infrav1.ElementalHost) bool {
	constraints, found := w.Searches.Get(cluster)
	if !found {
		return true
	}
	why, matches := constraints.WithContext(ctx).Matches(host)
	return matches || why == placement.NotEvaluated
}

// concernsSearch reports whether the change of a free host may make it suitable for an
// endpoint, or change the reason why it is not. Agent and operations do not.
func concernsSearch(before, after *infrav1.ElementalHost) bool {
	return hoststatus.Available(before).Reason() != hoststatus.Available(after).Reason() ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory) ||
		hoststatus.ClockSkew(before) != hoststatus.ClockSkew(after) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
}

package remediation

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// SetupWithManager registers the reconciler and its watches. The indexes of
// package index must have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalremediation")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)
	ofCluster, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.ElementalRemediationList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to ElementalRemediations: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("elementalremediation").
		For(&infrav1.ElementalRemediation{}).
		WithEventFilter(filter).
		WithOptions(options).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, machine client.Object) []ctrl.Request {
			return r.named(ctx, machine.GetNamespace(), machine.GetName())
		})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Watches(&infrav1.ElementalHost{}, r.hostHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// named returns a request for the remediation with that name, if it exists.
func (r *Reconciler) named(ctx context.Context, namespace, name string) []ctrl.Request {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := r.Client.Get(ctx, key, &infrav1.ElementalRemediation{}); err != nil {
		if !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Getting ElementalRemediation")
		}
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// hostHandler wakes the remediation of the host's Machine. When a change may bring the
// host's site online or offline, it wakes all remediations of the Cluster.
func (r *Reconciler) hostHandler() handler.EventHandler {
	wake := func(ctx context.Context, host *infrav1.ElementalHost, all bool, q reconcile.Queue) {
		if host.Spec.Claim == nil {
			return
		}
		requests := r.named(ctx, host.Namespace, host.Spec.Claim.MachineName)
		if all {
			requests = append(requests, r.ofCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)...)
		}
		for _, request := range requests {
			q.Add(request)
		}
	}
	return reconcile.HostEvents(func(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
		switch {
		case before == nil:
			wake(ctx, after, true, q)
		case after == nil:
			wake(ctx, before, true, q)
		default:
			wake(ctx, before, after.Spec.Claim == nil, q)
			wake(ctx, after, before.IsConnected() != after.IsConnected() || isExpected(before) != isExpected(after), q)
		}
	})
}

// ofCluster returns requests for all remediations of a Cluster.
func (r *Reconciler) ofCluster(ctx context.Context, namespace, name string) []ctrl.Request {
	remediations := &infrav1.ElementalRemediationList{}
	err := r.Client.List(ctx, remediations, client.InNamespace(namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalRemediations of Cluster")
		return nil
	}
	requests := make([]ctrl.Request, 0, len(remediations.Items))
	for i := range remediations.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&remediations.Items[i])})
	}
	return requests
}

package etcdrestore

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// SetupWithManager registers the reconciler and its watches. The indexes of package index must
// have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementaletcdrestore")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementaletcdrestore").
		For(&infrav1.ElementalEtcdRestore{}).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, cluster client.Object) []ctrl.Request {
			return r.ofCluster(ctx, cluster.GetNamespace(), cluster.GetName())
		})).
		Watches(&infrav1.ElementalHost{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []ctrl.Request {
			host, ok := object.(*infrav1.ElementalHost)
			if !ok || host.Spec.Claim == nil {
				return nil
			}
			return r.ofCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)
		})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// ofCluster returns the restores of a Cluster. There are few restores at any time.
func (r *Reconciler) ofCluster(ctx context.Context, namespace, cluster string) []ctrl.Request {
	restores := &infrav1.ElementalEtcdRestoreList{}
	if err := r.Client.List(ctx, restores, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalEtcdRestores")
		return nil
	}
	var requests []ctrl.Request
	for i := range restores.Items {
		if restores.Items[i].Spec.ClusterName == cluster {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&restores.Items[i])})
		}
	}
	return requests
}

package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
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
		Watches(&infrav1.ElementalHost{}, handler.EnqueueRequestsFromMapFunc(r.clustersOfHost)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// clustersOfHost returns the clusters whose endpoint is the host's address, and
// those that still look for a host.
func (r *Reconciler) clustersOfHost(ctx context.Context, host client.Object) []ctrl.Request {
	clusters := &infrav1.ElementalClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(host.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing clusters of host")
		return nil
	}
	var requests []ctrl.Request
	for i := range clusters.Items {
		c := &clusters.Items[i]
		ref := c.Spec.ControlPlaneEndpointPolicy.HostRef
		is := meta.FindStatusCondition(c.Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
		if (ref != nil && ref.Name == host.GetName()) || (is != nil && is.Status == metav1.ConditionFalse) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	return requests
}

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/failuredomain"
)

// SetupWithManager registers the reconciler and its watches. The indexes of
// package index must have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalcluster")
	filter := builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalcluster").
		For(&infrav1.ElementalCluster{}, filter).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("ElementalCluster"), r.Client, &infrav1.ElementalCluster{})), filter).
		// The cache has no Services but these.
		Owns(&corev1.Service{}).
		Owns(&ipamv1.IPAddressClaim{}, filter).
		Watches(&infrav1.ElementalHost{}, r.endpointWatches().Hosts(), filter).
		// Without the filter: a host that another manager takes over may end a failure
		// domain.
		Watches(&infrav1.ElementalHost{}, r.failureDomainWatches().Hosts()).
		Watches(&clusterv1.Machine{}, r.endpointWatches().Machines(), filter).
		Watches(&clusterv1.Machine{}, r.failureDomainWatches().Machines(), filter).
		// A bundle makes hosts suitable that lack programs.
		Watches(&infrav1.ElementalKubernetesRelease{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// inNamespace returns requests for the clusters in the namespace of an object.
func (r *Reconciler) inNamespace(ctx context.Context, of client.Object) []ctrl.Request {
	clusters := &infrav1.ElementalClusterList{}
	if err := r.Client.List(ctx, clusters, client.InNamespace(of.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalClusters")
		return nil
	}
	requests := make([]ctrl.Request, len(clusters.Items))
	for i := range clusters.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&clusters.Items[i])
	}
	return requests
}

func (r *Reconciler) endpointWatches() endpoint.Watches {
	return endpoint.Watches{Reader: r.reader(), Searches: &r.searches}
}

func (r *Reconciler) failureDomainWatches() failuredomain.Watches {
	return failuredomain.Watches{Reader: r.reader(), Cache: &r.domains}
}

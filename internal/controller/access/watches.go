package access

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "access")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("access").
		For(&infrav1.ElementalCluster{}, builder.WithPredicates(filter, reconcile.Changes(concernsInfraCluster))).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("ElementalCluster"), r.Client, &infrav1.ElementalCluster{})),
			builder.WithPredicates(filter, reconcile.Changes(concernsCluster))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

func concernsInfraCluster(before, after *infrav1.ElementalCluster) bool {
	return before.Generation != after.Generation || !maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
		!equality.Semantic.DeepEqual(tunnels(before), tunnels(after)) || hasAccess(before) != hasAccess(after)
}

func tunnels(c *infrav1.ElementalCluster) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, infrav1.TunnelReadyCondition)
}

// hasAccess is false again if status was lost.
func hasAccess(c *infrav1.ElementalCluster) bool {
	return meta.FindStatusCondition(c.Status.Conditions, infrav1.AccessReadyCondition) != nil
}

func concernsCluster(before, after *clusterv1.Cluster) bool {
	return annotations.IsPaused(before, before) != annotations.IsPaused(after, after) || before.Spec.InfrastructureRef != after.Spec.InfrastructureRef ||
		!equality.Semantic.DeepEqual(before.Status.Initialization, after.Status.Initialization)
}

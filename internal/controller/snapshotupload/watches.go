package snapshotupload

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Capabilities of agents: uploads for any destination, and copies for a folder in addition.
const (
	uploads = infrav1.OperationType(protocol.CapabilityEtcdSnapshotUpload)
	copies  = infrav1.OperationType(protocol.CapabilityEtcdSnapshotFolder)
)

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "snapshotupload")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("snapshotupload").
		For(&infrav1.ElementalCluster{}, builder.WithPredicates(filter, reconcile.Changes(concernsInfraCluster))).
		WithOptions(options).
		Watches(&infrav1.ElementalHost{}, handler.EnqueueRequestsFromMapFunc(r.clusterOf), builder.WithPredicates(filter, reconcile.Changes(concernsHost))).
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
	return !equality.Semantic.DeepEqual(before.Spec.EtcdSnapshots, after.Spec.EtcdSnapshots) ||
		!equality.Semantic.DeepEqual(last(before), last(after)) || !maps.Equal(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
		before.Status.EtcdSnapshots != nil && after.Status.EtcdSnapshots == nil
}

func last(c *infrav1.ElementalCluster) *infrav1.EtcdSnapshotTaken {
	if c.Spec.EtcdSnapshotRecord == nil {
		return nil
	}
	return c.Spec.EtcdSnapshotRecord.Last
}

func concernsHost(before, after *infrav1.ElementalHost) bool {
	return !equality.Semantic.DeepEqual(before.Status.EtcdSnapshotUpload, after.Status.EtcdSnapshotUpload)
}

func concernsCluster(before, after *clusterv1.Cluster) bool {
	return annotations.IsPaused(before, before) != annotations.IsPaused(after, after) || before.Spec.InfrastructureRef != after.Spec.InfrastructureRef
}

// clusterOf returns the ElementalCluster of a host that has uploaded something or failed to.
func (r *Reconciler) clusterOf(ctx context.Context, o client.Object) []ctrl.Request {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok || !host.IsBoundOrHeld() || host.Status.EtcdSnapshotUpload == nil {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: host.Spec.Claim.ClusterName}, cluster); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Finding the cluster of a host failed; its uploads are seen later", "host", host.Name)
		}
		return nil
	}
	ref := cluster.Spec.InfrastructureRef
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != ownership.InfraClusterKind {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: host.Namespace, Name: ref.Name}}}
}

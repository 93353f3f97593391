package certificates

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// SetupWithManager registers the reconciler and its watches. The indexes of package index must
// have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "certificates")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("certificates").
		For(&infrav1.ElementalCluster{}, builder.WithPredicates(filter,
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(options).
		Watches(&infrav1.ElementalHost{}, reconcile.HostEvents(r.ofHost)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(
			util.ClusterToInfrastructureMapFunc(ctx, infrav1.GroupVersion.WithKind("ElementalCluster"), r.Client, &infrav1.ElementalCluster{})),
			builder.WithPredicates(filter, reconcile.Changes(concernsCluster))).
		// Without the watch filter, as the hosts.
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), builder.WithPredicates(machineChanges())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

func concernsCluster(before, after *clusterv1.Cluster) bool {
	return annotations.IsPaused(before, before) != annotations.IsPaused(after, after) || before.Spec.InfrastructureRef != after.Spec.InfrastructureRef
}

// ofHost wakes the cluster of a control-plane host.
func (r *Reconciler) ofHost(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
	if before != nil && after != nil && !concernsHost(before, after) {
		return
	}
	for _, host := range []*infrav1.ElementalHost{before, after} {
		if host == nil || host.Spec.Claim == nil || !host.Spec.Claim.Role.IsControlPlane() {
			continue
		}
		if ref, found := r.infraOf(ctx, host.Namespace, host.Spec.Claim.ClusterName); found {
			q.Add(ctrl.Request{NamespacedName: ref})
		}
	}
}

// concernsHost reports whether a change of a host may matter. The hosts of a fleet report much else.
func concernsHost(before, after *infrav1.ElementalHost) bool {
	return before.Generation != after.Generation || before.IsConnected() != after.IsConnected() ||
		before.Supports(infrav1.OperationCertificateRenewal) != after.Supports(infrav1.OperationCertificateRenewal) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Status.Certificates, after.Status.Certificates) ||
		!equality.Semantic.DeepEqual(before.Status.Operations, after.Status.Operations) ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
}

// machineChanges passes what a reconcile reads of a Machine: whether it exists, is being deleted or
// upgraded, and when Cluster API expects its certificates to end.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			inplace.IsMarked(before.GetAnnotations()) != inplace.IsMarked(after.GetAnnotations()) ||
			before.GetAnnotations()[clusterv1.MachineCertificatesExpiryDateAnnotation] != after.GetAnnotations()[clusterv1.MachineCertificatesExpiryDateAnnotation]
	}}
}

// ofMachine returns the ElementalCluster of a control-plane Machine.
func (r *Reconciler) ofMachine(ctx context.Context, o client.Object) []ctrl.Request {
	machine, ok := o.(*clusterv1.Machine)
	if !ok || !util.IsControlPlaneMachine(machine) {
		return nil
	}
	ref, found := r.infraOf(ctx, machine.Namespace, machine.Spec.ClusterName)
	if !found {
		return nil
	}
	return []ctrl.Request{{NamespacedName: ref}}
}

// infraOf returns the ElementalCluster of a Cluster.
func (r *Reconciler) infraOf(ctx context.Context, namespace, name string) (_ types.NamespacedName, found bool) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cluster); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Finding the cluster of an event", "Cluster", klog.KRef(namespace, name))
		}
		return types.NamespacedName{}, false
	}
	ref := cluster.Spec.InfrastructureRef
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != ownership.InfraClusterKind {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: ref.Name}, true
}

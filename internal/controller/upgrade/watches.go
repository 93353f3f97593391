package upgrade

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// SetupWithManager registers the reconciler and its watches. The indexes of package index must
// have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalmachine-upgrade")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)
	ofCluster, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.ElementalMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to ElementalMachines: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("elementalmachine-upgrade").
		For(&infrav1.ElementalMachine{}, builder.WithPredicates(filter)).
		WithOptions(options).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), builder.WithPredicates(filter)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), builder.WithPredicates(filter)).
		Watches(&infrav1.ElementalCluster{}, handler.EnqueueRequestsFromMapFunc(r.ofInfraCluster),
			builder.WithPredicates(filter, predicate.GenerationChangedPredicate{})).
		Watches(&infrav1.ElementalHost{}, reconcile.HostEvents(r.ofHost), builder.WithPredicates(filter)).
		Watches(&infrav1.ElementalKubernetesRelease{}, handler.EnqueueRequestsFromMapFunc(r.ofRelease)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// ofMachine returns the Machine's ElementalMachine and, for a Machine of a control plane, the
// workers that wait for the control plane.
func (r *Reconciler) ofMachine(ctx context.Context, o client.Object) []ctrl.Request {
	own := util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("ElementalMachine"))(ctx, o)
	machine, ok := o.(*clusterv1.Machine)
	if !ok || !isControlPlane(machine) {
		return own
	}
	return append(own, r.waiting(ctx, o.GetNamespace(), client.MatchingLabels{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
		infrav1.UpgradeWaitingForControlPlane)...)
}

// ofInfraCluster returns the cluster's machines: its mode may have changed.
func (r *Reconciler) ofInfraCluster(ctx context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		return nil
	}
	return r.waiting(ctx, o.GetNamespace(), client.MatchingLabels{clusterv1.ClusterNameLabel: name}, "")
}

// ofRelease returns the machines that wait for a release.
func (r *Reconciler) ofRelease(ctx context.Context, o client.Object) []ctrl.Request {
	return r.waiting(ctx, o.GetNamespace(), nil, infrav1.UpgradeWaitingForReleaseReason)
}

// waiting returns the machines whose condition has the reason; blank for all.
func (r *Reconciler) waiting(ctx context.Context, namespace string, labels client.MatchingLabels, reason string) []ctrl.Request {
	machines := &infrav1.ElementalMachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(namespace), labels, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing machines that wait", "reason", reason)
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		m := &machines.Items[i]
		c := meta.FindStatusCondition(m.Status.Conditions, infrav1.KubernetesUpToDateCondition)
		if reason == "" || c != nil && c.Reason == reason {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return requests
}

// ofHost wakes the machine that has claimed the host.
func (r *Reconciler) ofHost(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
	if after == nil || after.Spec.Claim == nil || after.Spec.Claim.ID == "" || (before != nil && !concerns(before, after)) {
		return
	}
	machines := &infrav1.ElementalMachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(after.Namespace),
		client.MatchingFields{index.MachineByClaim: after.Spec.Claim.ID}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing machines of a host")
		return
	}
	for i := range machines.Items {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
}

// concerns reports whether a change of a host may matter for an upgrade. The hosts of a fleet
// report much else.
func concerns(before, after *infrav1.ElementalHost) bool {
	return before.Generation != after.Generation || before.IsConnected() != after.IsConnected() ||
		after.Spec.NodeUpgrade != nil || after.Spec.Bundle != nil || before.IsBootstrapped() != after.IsBootstrapped() ||
		!slices.Equal(capabilities(before), capabilities(after)) ||
		architecture(before) != architecture(after)
}

// architecture returns the architecture that the host has reported; blank if none.
func architecture(host *infrav1.ElementalHost) string {
	if host.Status.Inventory == nil {
		return ""
	}
	return host.Status.Inventory.Architecture
}

// capabilities returns what the host's agent can do.
func capabilities(host *infrav1.ElementalHost) []string {
	if host.Status.Agent == nil {
		return nil
	}
	return host.Status.Agent.Capabilities
}

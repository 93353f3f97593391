package template

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalmachinetemplate")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalmachinetemplate").
		For(&infrav1.ElementalMachineTemplate{}).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)).
		WithOptions(options).
		Watches(&clusterv1.Cluster{}, r.clusterHandler()).
		Watches(&infrav1.ElementalHost{}, r.hostHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// hostHandler wakes the templates that match a host, before or after a change that may
// change their status.
func (r *Reconciler) hostHandler() handler.EventHandler {
	return reconcile.HostEvents(func(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
		switch {
		case before == nil:
			r.wake(ctx, q, after)
		case after == nil:
			r.wake(ctx, q, before)
		case changesStatus(before, after):
			r.wake(ctx, q, before, after)
		}
	})
}

// changesStatus reports whether a change of the host may change a template's status.
func changesStatus(before, after *infrav1.ElementalHost) bool {
	return hoststatus.Available(before).IsTrue() != hoststatus.Available(after).IsTrue() ||
		hoststatus.Admitted(before).IsTrue() != hoststatus.Admitted(after).IsTrue() ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory)
}

// wake wakes the templates that match the host in one of its states.
func (r *Reconciler) wake(ctx context.Context, q reconcile.Queue, states ...*infrav1.ElementalHost) {
	for _, template := range r.templates(ctx, states[0].Namespace) {
		constraints := r.constraints(ctx, template)
		for _, state := range states {
			if _, ok := constraints.Matches(state); ok {
				q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(template)})
				break
			}
		}
	}
}

// clusterHandler wakes the templates of a Cluster that is created or unpaused.
func (r *Reconciler) clusterHandler() handler.EventHandler {
	wake := func(ctx context.Context, cluster client.Object, q reconcile.Queue) {
		for _, template := range r.templates(ctx, cluster.GetNamespace()) {
			if util.IsOwnedByObject(template, cluster, clusterv1.GroupVersion.WithKind("Cluster").GroupKind()) {
				q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(template)})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q reconcile.Queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q reconcile.Queue) {
			before, ok1 := e.ObjectOld.(*clusterv1.Cluster)
			after, ok2 := e.ObjectNew.(*clusterv1.Cluster)
			if ok1 && ok2 && ptr.Deref(before.Spec.Paused, false) && !ptr.Deref(after.Spec.Paused, false) {
				wake(ctx, after, q)
			}
		},
	}
}

// templates returns the namespace's templates. They belong to the cache and must not be
// changed.
func (r *Reconciler) templates(ctx context.Context, namespace string) []*infrav1.ElementalMachineTemplate {
	list := &infrav1.ElementalMachineTemplateList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing templates")
		return nil
	}
	templates := make([]*infrav1.ElementalMachineTemplate, len(list.Items))
	for i := range list.Items {
		templates[i] = &list.Items[i]
	}
	return templates
}

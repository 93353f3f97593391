package template

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
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

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// hostHandler wakes the templates that a host matches, or did, when it changes
// what they say.
func (r *Reconciler) hostHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				r.wake(ctx, q, host)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*infrav1.ElementalHost)
			after, ok2 := e.ObjectNew.(*infrav1.ElementalHost)
			if ok1 && ok2 && differ(before, after) {
				r.wake(ctx, q, before, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				r.wake(ctx, q, host)
			}
		},
	}
}

// differ reports whether templates may say something else of the host.
func differ(before, after *infrav1.ElementalHost) bool {
	return hoststatus.Available(before).IsTrue() != hoststatus.Available(after).IsTrue() ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory)
}

// wake queues the templates that match the host in one of its states.
func (r *Reconciler) wake(ctx context.Context, q queue, states ...*infrav1.ElementalHost) {
	for _, template := range r.templates(ctx, states[0].Namespace) {
		request := r.request(ctx, template)
		for _, state := range states {
			if _, ok := request.Matches(state); ok {
				q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(template)})
				break
			}
		}
	}
}

// clusterHandler wakes the templates of a Cluster that arrives or is paused no more.
func (r *Reconciler) clusterHandler() handler.EventHandler {
	wake := func(ctx context.Context, cluster client.Object, q queue) {
		for _, template := range r.templates(ctx, cluster.GetNamespace()) {
			if util.IsOwnedByObject(template, cluster, clusterv1.GroupVersion.WithKind("Cluster").GroupKind()) {
				q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(template)})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*clusterv1.Cluster)
			after, ok2 := e.ObjectNew.(*clusterv1.Cluster)
			if ok1 && ok2 && ptr.Deref(before.Spec.Paused, false) && !ptr.Deref(after.Spec.Paused, false) {
				wake(ctx, after, q)
			}
		},
	}
}

// templates returns the namespace's templates, which are the cache's own and must
// not be changed.
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

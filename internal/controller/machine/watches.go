package machine

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// SetupWithManager registers the reconciler and its watches. The indexes of
// package index must have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalmachine")
	filter := predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)
	ofCluster, err := util.ClusterToTypedObjectsMapper(r.Client, &infrav1.ElementalMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to ElementalMachines: %w", err)
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.offers = placement.NewPool()
	// Hosts that are another manager's are heard of too: they may have been ours.
	err = ctrl.NewControllerManagedBy(mgr).
		Named("elementalmachine").
		For(&infrav1.ElementalMachine{}, builder.WithPredicates(filter)).
		WithOptions(options).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(
			util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("ElementalMachine"))), builder.WithPredicates(filter)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), builder.WithPredicates(filter)).
		Watches(&infrav1.ElementalHost{}, r.hostHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// deletingIndex finds machines that are being deleted, by their Cluster.
const deletingIndex = "elementalmachine.deleting"

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &infrav1.ElementalMachine{}, deletingIndex, deletingOf); err != nil {
		return fmt.Errorf("adding index %s: %w", deletingIndex, err)
	}
	return nil
}

func deletingOf(o client.Object) []string {
	if o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return []string{o.GetLabels()[clusterv1.ClusterNameLabel]}
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// hostHandler keeps the hosts that may be had, wakes the machine that a host
// belongs to, and for every host that becomes free one machine that waits for such
// a host.
func (r *Reconciler) hostHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok && r.offer(host) {
				r.wakeOwner(ctx, host, q)
				if offered(host) {
					r.wakeWaiting(ctx, host, q)
				}
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*infrav1.ElementalHost)
			after, ok2 := e.ObjectNew.(*infrav1.ElementalHost)
			if !ok1 || !ok2 || !r.offer(after) || before.ResourceVersion == after.ResourceVersion {
				return
			}
			r.wakeOwner(ctx, after, q)
			if connected(after) && !connected(before) {
				r.wakeDeleting(ctx, after, q)
			}
			if offered(after) && (!offered(before) || offeredToOthers(before, after)) {
				r.wakeWaiting(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if host, ok := e.Object.(*infrav1.ElementalHost); ok {
				if r.offers != nil {
					r.offers.Remove(host.Namespace, host.Name)
				}
				if r.watches(host) {
					r.wakeOwner(ctx, host, q)
				}
			}
		},
	}
}

// offer keeps the host if it may be had. It reports whether it is one of ours.
func (r *Reconciler) offer(host *infrav1.ElementalHost) bool {
	ours := r.watches(host)
	switch {
	case r.offers == nil:
	case ours:
		r.offers.Set(host)
	default:
		r.offers.Remove(host.Namespace, host.Name)
	}
	return ours
}

// offered reports whether some machine may take the host: it is free, or
// reserved for the first control-plane machine of a cluster.
func offered(host *infrav1.ElementalHost) bool {
	if host.Spec.Claim == nil {
		return hoststatus.Available(host).IsTrue()
	}
	return host.Spec.Claim.Phase == infrav1.ClaimReserved && hoststatus.Usable(host).IsTrue()
}

// offeredToOthers reports whether a change brings an offered host to machines
// that could not have it before: it was relabelled, reserved for a cluster, or
// has other hardware.
func offeredToOthers(before, after *infrav1.ElementalHost) bool {
	return !maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Claim, after.Spec.Claim) ||
		!equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory)
}

func connected(host *infrav1.ElementalHost) bool {
	c := host.Status.Connection
	return c != nil && c.State == infrav1.ConnectionConnected
}

// wakeDeleting wakes the machines of the host's cluster that are being deleted:
// the host may be the first of a dark site to return, from when on a silent host
// has to answer within its time.
func (r *Reconciler) wakeDeleting(ctx context.Context, host *infrav1.ElementalHost, q queue) {
	if host.Spec.Claim == nil {
		return
	}
	machines := &infrav1.ElementalMachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(host.Namespace),
		client.MatchingFields{deletingIndex: host.Spec.Claim.ClusterName}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing machines that are being deleted")
		return
	}
	for i := range machines.Items {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
}

func (r *Reconciler) wakeOwner(ctx context.Context, host *infrav1.ElementalHost, q queue) {
	if host.Spec.Claim == nil || host.Spec.Claim.ID == "" {
		return
	}
	machines := &infrav1.ElementalMachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(host.Namespace),
		client.MatchingFields{index.MachineByClaim: host.Spec.Claim.ID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing machines of host")
		return
	}
	for i := range machines.Items {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
}

// wakeWaiting wakes one waiting machine that the host suits.
func (r *Reconciler) wakeWaiting(ctx context.Context, host *infrav1.ElementalHost, q queue) {
	// Of those that ask for the same, one is looked at for what it asks.
	matches := map[string]bool{}
	key, found := r.waiting.wake(r.Clock.Now(), client.ObjectKeyFromObject(host), func(w *waiter) bool {
		if is, known := matches[w.asks]; known && !is {
			return false
		}
		s := &scope{machine: &infrav1.ElementalMachine{}}
		if err := r.Client.Get(ctx, w.key, s.machine); err != nil {
			if !apierrors.IsNotFound(err) {
				ctrl.LoggerFrom(ctx).Error(err, "Getting waiting machine")
			}
			return false
		}
		// Nothing is heard of a machine that became another manager's.
		if !r.watches(s.machine) {
			return false
		}
		if err := r.read(ctx, s); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Reading waiting machine")
			return false
		}
		if s.owner == nil || s.cluster == nil || !s.machine.DeletionTimestamp.IsZero() || paused(s) || !mayClaim(s) {
			return false
		}
		request := r.requestFor(ctx, s)
		_, suits := request.Matches(host)
		suits = suits && (host.Spec.Claim == nil || host.Spec.Claim.ClusterName == request.ReservedFor)
		matches[asks(s, request)] = suits
		return suits
	})
	if found {
		q.Add(ctrl.Request{NamespacedName: key})
	}
}

func workerRank(m *infrav1.ElementalMachine) int {
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return 0
	}
	return 1
}

package machine

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// SetupWithManager registers the reconciler and its watches. The indexes of package
// index must have been registered.
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
	r.freeHosts = placement.NewCandidates()
	// Hosts are not filtered: one whose watch-filter label changed must leave freeHosts.
	err = ctrl.NewControllerManagedBy(mgr).
		Named("elementalmachine").
		For(&infrav1.ElementalMachine{}, builder.WithPredicates(filter)).
		WithOptions(options).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(
			util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("ElementalMachine"))), builder.WithPredicates(filter)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), builder.WithPredicates(filter)).
		Watches(&infrav1.ElementalKubernetesRelease{}, handler.EnqueueRequestsFromMapFunc(notBootstrapped(r.Client, r.WatchFilter))).
		Watches(&infrav1.ElementalHost{}, r.hostHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// notBootstrapped returns a function that returns requests for the machines in the namespace of
// a release that are not bootstrapped yet: those with a host may get its bundle, and the others
// a host that lacks programs.
func notBootstrapped(c client.Reader, watchFilter string) handler.MapFunc {
	return func(ctx context.Context, of client.Object) []ctrl.Request {
		machines := &infrav1.ElementalMachineList{}
		if err := c.List(ctx, machines, client.InNamespace(of.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalMachines")
			return nil
		}
		var requests []ctrl.Request
		for i := range machines.Items {
			if m := &machines.Items[i]; m.Spec.ProviderID == "" && reconcile.IsWatched(m, watchFilter) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
			}
		}
		return requests
	}
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

// hostHandler keeps freeHosts up to date, wakes the machine that has claimed a host,
// and wakes one waiting machine for each host that becomes free.
func (r *Reconciler) hostHandler() handler.EventHandler {
	return reconcile.HostEvents(func(ctx context.Context, before, after *infrav1.ElementalHost, q reconcile.Queue) {
		switch {
		case after == nil:
			if r.freeHosts != nil {
				r.freeHosts.Remove(before.Namespace, before.Name)
			}
			if reconcile.IsWatched(before, r.WatchFilter) {
				r.wakeClaimant(ctx, before, q)
			}
		case r.updateFreeHosts(after):
			r.wakeClaimant(ctx, after, q)
			if before != nil && after.IsConnected() && !before.IsConnected() {
				r.wakeDeleting(ctx, after, q)
			}
			if claimable(after) && (before == nil || !claimable(before) || suitsMore(before, after)) {
				r.wakeWaiting(ctx, after, q)
			}
		}
	})
}

// updateFreeHosts updates freeHosts with the host. It reports whether this manager
// watches the host.
func (r *Reconciler) updateFreeHosts(host *infrav1.ElementalHost) (watched bool) {
	watched = reconcile.IsWatched(host, r.WatchFilter)
	switch {
	case r.freeHosts == nil:
	case watched:
		r.freeHosts.Update(host)
	default:
		r.freeHosts.Remove(host.Namespace, host.Name)
	}
	return watched
}

// claimable reports whether a machine may claim the host: it is free, or reserved for
// the first control-plane machine of a cluster.
func claimable(host *infrav1.ElementalHost) bool {
	if host.Spec.Claim == nil {
		return hoststatus.Available(host).IsTrue()
	}
	return host.Spec.Claim.Phase == infrav1.ClaimReserved && hoststatus.Usable(host).IsTrue()
}

// suitsMore reports whether a change of a claimable host may make it match machines
// that it did not match before: its labels, reservation, inventory, clock or capabilities changed.
func suitsMore(before, after *infrav1.ElementalHost) bool {
	return !maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Claim, after.Spec.Claim) ||
		!equality.Semantic.DeepEqual(before.Spec.Adoption, after.Spec.Adoption) ||
		!equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory) ||
		hoststatus.ClockSkew(before) != hoststatus.ClockSkew(after) ||
		tunnelhost.IsCapable(before) != tunnelhost.IsCapable(after)
}

// wakeDeleting wakes the machines of the host's cluster that are being deleted. If the
// host is the first of its site to reconnect, remainingWait starts to count for them.
func (r *Reconciler) wakeDeleting(ctx context.Context, host *infrav1.ElementalHost, q reconcile.Queue) {
	if host.Spec.Claim != nil {
		wake(ctx, r.Client, host.Namespace, deletingIndex, host.Spec.Claim.ClusterName, q)
	}
}

// wakeClaimant wakes the machine that has claimed the host.
func (r *Reconciler) wakeClaimant(ctx context.Context, host *infrav1.ElementalHost, q reconcile.Queue) {
	if host.Spec.Claim != nil && host.Spec.Claim.ID != "" {
		wake(ctx, r.Client, host.Namespace, index.MachineByClaim, host.Spec.Claim.ID, q)
	}
}

// wake wakes the machines that the index finds for the value.
func wake(ctx context.Context, cache client.Reader, namespace, indexName, value string, q reconcile.Queue) {
	machines := &infrav1.ElementalMachineList{}
	err := cache.List(ctx, machines, client.InNamespace(namespace), client.MatchingFields{indexName: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing machines of a host", "index", indexName)
		return
	}
	for i := range machines.Items {
		q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
}

// wakeWaiting wakes one waiting machine that may claim the host. Without one, it wakes a
// control-plane machine that could claim the host in another failure domain.
func (r *Reconciler) wakeWaiting(ctx context.Context, host *infrav1.ElementalHost, q reconcile.Queue) {
	if !r.wakeMatching(ctx, host, q, false) {
		r.wakeMatching(ctx, host, q, true)
	}
}

// wakeMatching wakes one waiting machine whose constraints match the host, and reports
// whether there is one. inAnyDomain considers control-plane machines only, and matches
// them regardless of their failure domain.
func (r *Reconciler) wakeMatching(ctx context.Context, host *infrav1.ElementalHost, q reconcile.Queue, inAnyDomain bool) bool {
	// Machines with the same constraints are evaluated once.
	matches := map[string]bool{}
	key, found := r.waiting.wake(r.Clock.Now(), client.ObjectKeyFromObject(host), func(w *waiter) bool {
		if match, known := matches[w.constraints]; (known && !match) || (inAnyDomain && !w.controlPlane) {
			return false
		}
		s := &scope{machine: &infrav1.ElementalMachine{}}
		if err := r.Client.Get(ctx, w.key, s.machine); err != nil {
			if !apierrors.IsNotFound(err) {
				ctrl.LoggerFrom(ctx).Error(err, "Getting waiting machine")
			}
			return false
		}
		// No event arrives for a machine whose watch-filter label changed.
		if !reconcile.IsWatched(s.machine, r.WatchFilter) {
			return false
		}
		if err := read(ctx, r.Client, s); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Reading waiting machine")
			return false
		}
		if s.owner == nil || s.cluster == nil || !s.machine.DeletionTimestamp.IsZero() || paused(s) || !wanted(s).MayClaim() {
			return false
		}
		constraints := wanted(s).Constraints(ctx, r.Selectors)
		group := constraintsKey(s, constraints)
		if inAnyDomain {
			constraints.FailureDomain = ""
		}
		_, match := constraints.Matches(host)
		match = match && (host.Spec.Claim == nil || host.Spec.Claim.ClusterName == constraints.ReservedFor)
		matches[group] = match
		return match
	})
	if found {
		q.Add(ctrl.Request{NamespacedName: key})
	}
	return found
}

func workerRank(m *infrav1.ElementalMachine) int {
	if _, ok := m.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		return 0
	}
	return 1
}

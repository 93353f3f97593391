package failuredomain

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// lossDelay is how long changes are collected that may remove a failure domain. Claims
// of other clusters come by the thousand, and each reconcile reads many hosts.
const lossDelay = 5 * time.Second

// effect says how soon a cluster is reconciled after the change of a host.
type effect int

const (
	noEffect effect = iota
	// mayLose: the change may remove a failure domain.
	mayLose
	// mayGain: the change may add a failure domain.
	mayGain
	// mayBreakVIP: the change may take an interface away from the virtual IP address.
	mayBreakVIP
)

// Watches enqueues clusters whose failure domains the change of a host may alter.
type Watches struct {
	Reader scope.Reader
	Cache  *Cache
}

// Hosts returns the handler of hosts' events. It must get the events of all hosts: one
// that loses the watch filter's label counts as deleted.
func (w Watches) Hosts() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q reconcile.Queue) { w.enqueue(ctx, q, nil, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q reconcile.Queue) {
			w.enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q reconcile.Queue) { w.enqueue(ctx, q, e.Object, nil) },
	}
}

// Machines returns the handler of Machines' events. A control-plane Machine that is new,
// gone, being deleted, in another failure domain or no longer up to date may change what
// the control plane does next.
func (w Watches) Machines() handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q reconcile.Queue) {
		m, ok := o.(*clusterv1.Machine)
		if !ok || !util.IsControlPlaneMachine(m) {
			return
		}
		for _, c := range w.Reader.ClustersByIndex(ctx, m.Namespace, index.ClusterByName, m.Spec.ClusterName) {
			q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q reconcile.Queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q reconcile.Queue) {
			before, ok1 := e.ObjectOld.(*clusterv1.Machine)
			after, ok2 := e.ObjectNew.(*clusterv1.Machine)
			if ok1 && ok2 && (before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
				before.Spec.FailureDomain != after.Spec.FailureDomain || isOutdated(before) != isOutdated(after)) {
				enqueue(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q reconcile.Queue) { enqueue(ctx, e.Object, q) },
	}
}

func (w Watches) enqueue(ctx context.Context, q reconcile.Queue, old, current client.Object) {
	before, after := w.watchedHost(old), w.watchedHost(current)
	if (before == nil && after == nil) || (before != nil && after != nil && isIrrelevant(before, after)) {
		return
	}
	for _, c := range w.candidates(ctx, before, after) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
		switch w.effectOn(ctx, c, before, after) {
		case mayBreakVIP:
			q.Add(request)
		case mayGain:
			q.AddAfter(request, scope.BatchDelay)
		case mayLose:
			q.AddAfter(request, lossDelay)
		case noEffect:
		}
	}
}

// watchedHost returns the host if it exists and has the watch filter's label, else nil.
func (w Watches) watchedHost(o client.Object) *infrav1.ElementalHost {
	host, ok := o.(*infrav1.ElementalHost)
	if !ok || !reconcile.IsWatched(host, w.Reader.WatchFilter) {
		return nil
	}
	return host
}

// candidates returns the clusters that the change of a host may affect: the host's own,
// and those whose label of failure domains the host has.
func (w Watches) candidates(ctx context.Context, before, after *infrav1.ElementalHost) []*infrav1.ElementalCluster {
	var clusters []*infrav1.ElementalCluster
	labels := map[string]struct{}{}
	for _, host := range []*infrav1.ElementalHost{before, after} {
		if host == nil {
			continue
		}
		for label := range host.Labels {
			labels[label] = struct{}{}
		}
	}
	namespace := cmp.Or(after, before).Namespace
	for label := range labels {
		clusters = append(clusters, w.Reader.ClustersByIndex(ctx, namespace, index.ClusterByDomainLabel, label)...)
	}
	if after != nil && after.Spec.Claim != nil {
		clusters = append(clusters, w.Reader.ClustersByIndex(ctx, namespace, index.ClusterByName, after.Spec.Claim.ClusterName)...)
	}
	return clusters
}

// isIrrelevant reports whether the change affects no cluster at all. It reads none.
func isIrrelevant(before, after *infrav1.ElementalHost) bool {
	return isAdmitted(before) == isAdmitted(after) && offer(before) == offer(after) && tunnelhost.IsCapable(before) == tunnelhost.IsCapable(after) &&
		equality.Semantic.DeepEqual(before.Labels, after.Labels) &&
		equality.Semantic.DeepEqual(before.Spec.Claim, after.Spec.Claim) &&
		equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory)
}

// effectOn returns the effect that the change of a host may have on the cluster. before
// is nil for a new host, after for a deleted one.
func (w Watches) effectOn(ctx context.Context, c *infrav1.ElementalCluster, before, after *infrav1.ElementalHost) effect {
	label := placement.FailureDomainLabel(c)
	found, known := w.Cache.Get(client.ObjectKeyFromObject(c))
	known = known && found.label == label
	adds := func() bool {
		if known {
			return found.mayAdd(ctx, after)
		}
		// If a reconcile in progress removes the domain, the change of status triggers
		// another one.
		return !isPublished(c, after.Labels[label])
	}
	switch {
	case isClaimedBy(c, after) && after.Spec.Claim.Role != infrav1.RoleWorker && c.EndpointType() == infrav1.EndpointTypeVIP:
		return mayBreakVIP
	case mayChangeStep(c, before, after):
		return mayGain
	case after != nil && isAdmitted(after) && after.Labels[label] != "" && (after.Spec.Claim == nil || isClaimedBy(c, after)) && adds():
		return mayGain
	case before != nil && isAdmitted(before) && before.Labels[label] != "" && (!known || found.dependsOn(before)):
		return mayLose
	default:
		return noEffect
	}
}

// mayChangeStep reports whether the host becomes a host of the cluster's control plane,
// or ceases to be one. That may change what the control plane does next.
func mayChangeStep(c *infrav1.ElementalCluster, before, after *infrav1.ElementalHost) bool {
	return isControlPlane(c, before) != isControlPlane(c, after)
}

// isControlPlane reports whether the host is bound to a control-plane Machine of the
// cluster.
func isControlPlane(c *infrav1.ElementalCluster, host *infrav1.ElementalHost) bool {
	return isClaimedBy(c, host) && host.Spec.Claim.Phase == infrav1.ClaimBound && host.Spec.Claim.Role != infrav1.RoleWorker
}

func isClaimedBy(c *infrav1.ElementalCluster, host *infrav1.ElementalHost) bool {
	return host != nil && host.Spec.Claim != nil && host.Spec.Claim.ClusterName == c.Labels[clusterv1.ClusterNameLabel]
}

// isPublished reports whether the cluster has published the failure domain for its
// control plane.
func isPublished(c *infrav1.ElementalCluster, name string) bool {
	return slices.ContainsFunc(c.Status.FailureDomains, func(d clusterv1.FailureDomain) bool {
		return d.Name == name && ptr.Deref(d.ControlPlane, false)
	})
}

package router

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// Informers is the part of cache.Cache that Watch needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Watch has changes of hosts, Machines and clusters end the connections that are no longer
// permitted, until the program ends. It must be called before the cache starts.
func (r *Router) Watch(ctx context.Context, informers Informers) error {
	for _, w := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&infrav1.ElementalHost{}, events(func(before, after *infrav1.ElementalHost) { r.hostChanged(before, after) })},
		{&clusterv1.Machine{}, events(func(before, after *clusterv1.Machine) { r.machineChanged(ctx, before, after) })},
		{&infrav1.ElementalCluster{}, events(func(before, _ *infrav1.ElementalCluster) {
			r.clusterChanged(ctx, before.Namespace, before.Labels[clusterv1.ClusterNameLabel])
		})},
		{&clusterv1.Cluster{}, events(func(before, _ *clusterv1.Cluster) { r.clusterChanged(ctx, before.Namespace, before.Name) })},
	} {
		informer, err := informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("getting informer: %w", err)
		}
		if _, err := informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	return nil
}

// events passes changes and deletions on; after is nil for a deletion. A new object takes
// nothing away from a connection.
func events[T any](changed func(before, after *T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*T)
			current, ok2 := after.(*T)
			if ok1 && ok2 {
				changed(old, current)
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if old, ok := object.(*T); ok {
				changed(old, nil)
			}
		},
	}
}

// hostChanged ends the connections through a host that may carry none any more, carries
// them for another claim, or whose API server has stopped being ready.
func (r *Router) hostChanged(before, after *infrav1.ElementalHost) {
	was, did := kindOf(before)
	if !did {
		return
	}
	if after != nil {
		if is, does := kindOf(after); does && is <= was && after.UID == before.UID && after.Spec.Claim.ID == before.Spec.Claim.ID {
			return
		}
	}
	end(r.open.ofHost(client.ObjectKeyFromObject(before)))
}

// machineChanged ends the connections through the host of a Machine whose deletion begins.
func (r *Router) machineChanged(ctx context.Context, before, after *clusterv1.Machine) {
	if after != nil && (after.DeletionTimestamp.IsZero() || !before.DeletionTimestamp.IsZero()) {
		return
	}
	hosts := &infrav1.ElementalHostList{}
	err := r.options.Cache.List(ctx, hosts, client.InNamespace(before.Namespace), client.MatchingFields{index.HostByMachine: before.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing hosts of a Machine that is being deleted")
		return
	}
	for i := range hosts.Items {
		end(r.open.ofHost(client.ObjectKeyFromObject(&hosts.Items[i])))
	}
}

// clusterChanged ends the connections to a cluster that is no longer where they were routed
// to.
func (r *Router) clusterChanged(ctx context.Context, namespace, name string) {
	cluster := types.NamespacedName{Namespace: namespace, Name: name}
	ends := map[route]bool{}
	for _, c := range r.open.ofCluster(cluster) {
		if _, judged := ends[c.by]; !judged {
			ends[c.by] = r.confirm(ctx, c.by) != nil
		}
		if ends[c.by] {
			end([]*conn{c})
		}
	}
}

// end closes connections. The goroutines that copy their data get an error, and close the
// callers' connections.
func end(conns []*conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

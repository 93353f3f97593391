package scope

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// Reader reads hosts, clusters and control planes from the cache.
type Reader struct {
	Client client.Reader
	// Selectors caches compiled host selectors; nil compiles them each time.
	Selectors *selector.Compiler
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that hosts
	// must have; blank for all.
	WatchFilter string
}

// ClaimedHosts returns the hosts that are claimed for the cluster, by name.
func (r Reader) ClaimedHosts(ctx context.Context, namespace, cluster string) (map[string]*infrav1.ElementalHost, error) {
	list := &infrav1.ElementalHostList{}
	err := r.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index.HostByCluster: cluster})
	if err != nil {
		return nil, fmt.Errorf("listing hosts of the cluster: %w", err)
	}
	hosts := make(map[string]*infrav1.ElementalHost, len(list.Items))
	for i := range list.Items {
		hosts[list.Items[i].Name] = &list.Items[i]
	}
	return hosts, nil
}

// Hosts returns the hosts of the namespace that the options select. They belong to the
// cache and must not be changed. Hosts of other managers are left out: this manager
// gets no events for them.
func (r Reader) Hosts(ctx context.Context, namespace string, options ...client.ListOption) ([]*infrav1.ElementalHost, error) {
	return reconcile.ListHosts(ctx, r.Client, namespace, r.WatchFilter, options...)
}

// ClustersByIndex returns the ElementalClusters that the index has under the value.
// They belong to the cache and must not be changed. It is for event handlers, which
// can't return an error: a failure is logged.
func (r Reader) ClustersByIndex(ctx context.Context, namespace, field, value string) []*infrav1.ElementalCluster {
	list := &infrav1.ElementalClusterList{}
	err := r.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalClusters", "index", field)
		return nil
	}
	clusters := make([]*infrav1.ElementalCluster, len(list.Items))
	for i := range list.Items {
		clusters[i] = &list.Items[i]
	}
	return clusters
}

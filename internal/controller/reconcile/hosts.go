package reconcile

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// IsWatched reports whether the object has the watch filter's label. A blank
// filter selects all objects.
func IsWatched(object client.Object, watchFilter string) bool {
	return watchFilter == "" || labels.HasWatchLabel(object, watchFilter)
}

// ListHosts returns the hosts of the namespace that have the watch filter's label
// and match the options; this manager gets no events of other hosts. The hosts are
// the cache's own objects: callers must not change them.
func ListHosts(ctx context.Context, c client.Reader, namespace, watchFilter string, options ...client.ListOption) ([]*infrav1.ElementalHost, error) {
	options = append(options, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if watchFilter != "" {
		options = append(options, client.MatchingLabels{clusterv1.WatchLabel: watchFilter})
	}
	list := &infrav1.ElementalHostList{}
	if err := c.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	hosts := make([]*infrav1.ElementalHost, len(list.Items))
	for i := range list.Items {
		hosts[i] = &list.Items[i]
	}
	return hosts, nil
}

// Get reads the named object into object. It returns nil if the object does not
// exist or name is blank.
func Get[T any, O Object[T]](ctx context.Context, c client.Reader, namespace, name string, object O) (O, error) {
	if name == "" {
		return nil, nil
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// ConnectedSince returns the earliest time since which one of the hosts has been
// connected without interruption. It reports false if none is connected.
//
// Such a host is a witness that its site is online. While no host of a site is
// connected, the network may be down, and nothing follows from a host's silence.
func ConnectedSince(hosts []*infrav1.ElementalHost) (since time.Time, found bool) {
	for _, host := range hosts {
		if !host.IsConnected() {
			continue
		}
		if c := host.Status.Connection.Since.Time; !found || c.Before(since) {
			since, found = c, true
		}
	}
	return since, found
}

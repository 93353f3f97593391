package fleet

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Informers is the part of cache.Cache that the metrics need.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Options of the metrics.
type Options struct {
	// Reader reads from the cache.
	Reader client.Reader
	// Informers tell of changes. They must be those of the cache that Reader reads from.
	Informers Informers
	// Elected is closed when this process becomes the leader.
	Elected <-chan struct{}
	// Clock is the time source of durations.
	Clock clock.PassiveClock
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must have;
	// blank for all.
	WatchFilter string
	// Metrics is where the metrics are registered.
	Metrics prometheus.Registerer
}

// Register registers the metrics, and observes changes from now on. It fails if the metrics are
// registered already.
func Register(ctx context.Context, o Options) error {
	hosts, machines := newHostMetrics(), newMachineMetrics()
	counts := &collector{reader: o.Reader, watchFilter: o.WatchFilter, elected: o.Elected, description: newGauges()}
	for _, c := range append([]prometheus.Collector{counts}, append(hosts.all(), machines.all()...)...) {
		if err := o.Metrics.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, w := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&infrav1.ElementalHost{}, &observer[*infrav1.ElementalHost]{
			clock: o.Clock, elected: o.Elected, watchFilter: o.WatchFilter, durations: hosts.states, changed: hosts.observe,
		}},
		{&infrav1.ElementalMachine{}, &observer[*infrav1.ElementalMachine]{
			clock: o.Clock, elected: o.Elected, watchFilter: o.WatchFilter, durations: machines.states, changed: machines.observe,
		}},
	} {
		informer, err := o.Informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		if _, err := informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
	}
	return nil
}

package bench

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/tunnels"
)

// measureTunnel measures what leads to clusters whose hosts only connect outwards. There are as many idle tunnels as hosts.
func measureTunnel(ctx context.Context, r *run) error {
	report, err := tunnels.Measure(ctx, tunnels.Options{
		Checkout: r.options.Checkout, Manager: r.options.Manager, Tunnels: r.options.Hosts, Rest: r.options.Rest, Progress: r.progress,
	})
	r.add(report)
	return err
}

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/conditions"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/dials"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/nodes"
)

const (
	// tunnelShare is the share of hosts (1/tunnelShare) that are the first of a control plane of controlPlane hosts.
	tunnelShare  = 10
	controlPlane = 3
	// dialEvery is the time between two dials.
	dialEvery = 50 * time.Millisecond
	// dialP99 is the target for dials while hosts return.
	dialP99 = 250 * time.Millisecond
	// restingDials is how many dials are made at rest.
	restingDials = 200
	// connectedTunnels is the manager's metric of hosts with a tunnel.
	connectedTunnels = "elemental_tunnels_connected"
)

// tunnelled is a rig with clusters of type Tunnel.
type tunnelled struct{ *rig }

// measureGateway measures a fleet of which three hosts in ten have a tunnel: at rest, and when the manager is killed.
func measureGateway(ctx context.Context, r *rig) error {
	g := &tunnelled{r}
	clusters, err := g.gatherTunnels(ctx)
	if err != nil {
		return err
	}
	tunnels := len(clusters) * controlPlane
	if err := g.tunnelsAtRest(ctx, clusters); err != nil {
		return err
	}
	before, err := conditions.OfClusters(ctx, g.admin, namespace)
	if err != nil {
		return err
	}
	v, err := conditions.Record(ctx, g.admin, namespace)
	if err != nil {
		return err
	}
	defer v.Cancel()
	g.progress.Say("Killing the leader")
	start := time.Now()
	g.cluster.Managers()[0].Kill()
	back, err := g.dialWhile(ctx, clusters, func() (returned, error) { return g.awaitReturn(ctx, start, tunnels) })
	if err != nil {
		return err
	}
	watched := g.options.Rest / 4
	g.progress.Say("Watching conditions until %s after the death", watched)
	if err := measure.Pause(ctx, time.Until(start.Add(watched))); err != nil {
		return err
	}
	if err := v.Stop(); err != nil {
		return err
	}
	now, err := conditions.OfClusters(ctx, g.admin, namespace)
	if err != nil {
		return err
	}
	changes := slices.Concat(v.Changes, before.Changes(now))
	for _, change := range changes[:min(len(changes), 10)] {
		g.progress.Say("%s", change)
	}
	g.rowsOfReturn(back, tunnels, len(changes))
	g.note("%s hosts have enrolled, and %s clusters of type Tunnel have %d control-plane hosts each; the other hosts are free. "+
		"They rest and are watched as in the first section, with metrics of the API server and the kernel. Two managers elect a leader with a lease of 15 s, and share the addresses at which "+
		"the leader alone listens, as behind the Services. The leader is killed. A host is back when it waits for its plan at the other one, and its tunnel when that knows it. "+
		"A dial is a TLS handshake of an API server through the gateway, of one cluster after the other, begun %s after the one before; those that fail, because no host of their "+
		"cluster is back, are told apart. Conditions are those of hosts and of ElementalClusters, until %s after the death. Hosts were written %s times. "+
		"API servers of hosts are probed every %s instead of every 5 s, and the manager is built for virtual hosts: all hosts share this machine.",
		table.Count(g.options.Hosts), table.Count(len(clusters)), controlPlane, dialEvery, watched, table.Count(v.Written), nodes.ProbePeriod)
	return nil
}

// tunnelsAtRest measures the first manager with tunnels that carry nothing, and then dials through them.
func (g *tunnelled) tunnelsAtRest(ctx context.Context, clusters []string) error {
	g.progress.Say("All tunnels are open. Leaving them alone for %s and watching them for %s.", g.options.Rest/aloneShare, g.options.Rest)
	if err := measure.Pause(ctx, max(g.options.Rest/aloneShare, aftermath)); err != nil {
		return err
	}
	if _, err := g.quiet(ctx); err != nil {
		return err
	}
	manager := g.cluster.Managers()[0]
	p := measure.Process(manager.PID())
	var looks []uint64
	cpu, writes, err := g.atRest(ctx, p, func() error {
		return g.profiled(ctx, "rest", manager, func() (err error) {
			looks, err = g.watchMemory(ctx, p, g.options.Rest)
			return err
		})
	})
	if err != nil {
		return err
	}
	most, tunnels := float64(slices.Max(looks)), table.Count(len(clusters)*controlPlane)
	g.row(table.Row{
		Figure: fmt.Sprintf("Memory of the manager, at most, %s hosts of which %s have a tunnel", table.Count(g.options.Hosts), tunnels),
		Value:  table.MiB(most), Target: "below " + table.MiB(memoryLimit), Missed: most >= memoryLimit,
	})
	g.row(table.Row{
		Figure: "CPU of the manager, of one core", Value: table.Percent(cpu), Target: "below " + table.Percent(restingCPU), Missed: cpu >= restingCPU,
	})
	n := writes.Only(measure.Write.Object).Total() + writes.Only(measure.Write.Event).Total()
	g.row(table.Row{Figure: "Writes to the API server", Value: table.Count(n), Target: "0", Missed: n > 0})
	d := &dials.Dials{}
	for i := range restingDials {
		if err := d.Dial(ctx, g.cluster.Gateway, endpointOf(clusters[i%len(clusters)])); err != nil {
			return err
		}
	}
	if d.Failed > 0 {
		return fmt.Errorf("%d of %d dials at rest failed, the last one: %w", d.Failed, restingDials, d.Last)
	}
	g.row(table.Row{Figure: "Dial at rest, median", Value: table.Duration(measure.Quantile(d.Took, 0.5))})
	return nil
}

// endpointOf returns the name of a cluster's endpoint.
func endpointOf(cluster string) string { return cluster + "-endpoint." + nodes.Domain(namespace) }

// returned says when hosts and tunnels were back, and how they were reached meanwhile.
type returned struct {
	first, hosts, tunnels time.Duration
	// missing counts hosts and tunnels that were not back at the limit.
	missing int
	dials   *dials.Dials
}

// awaitReturn waits until the other manager has all hosts and tunnels.
func (g *tunnelled) awaitReturn(ctx context.Context, start time.Time, tunnels int) (returned, error) {
	var r returned
	if err := g.until(ctx, "the first tunnel", func(ctx context.Context) (bool, error) { return g.tunnels(ctx) > 0, nil }); err != nil {
		return r, err
	}
	r.first = time.Since(start)
	hosts, err := g.awaitConnected(ctx, 0, stormLimit)
	if err != nil {
		return r, err
	}
	r.hosts = time.Since(start)
	now, err := g.awaitTunnels(ctx, tunnels, stormLimit)
	r.tunnels, r.missing = time.Since(start), g.hosts()-hosts+tunnels-now
	return r, err
}

// dialWhile dials one cluster after the other while wait waits for hosts and tunnels, from the first tunnel on.
func (g *tunnelled) dialWhile(ctx context.Context, clusters []string, wait func() (returned, error)) (returned, error) {
	raging, over := context.WithCancel(ctx)
	defer over()
	made := &dials.Dials{}
	var dialling sync.WaitGroup
	dialling.Go(func() {
		if g.until(raging, "the first tunnel", func(ctx context.Context) (bool, error) { return g.tunnels(ctx) > 0, nil }) != nil {
			return // wait knows why
		}
		for i := 0; measure.Pause(raging, dialEvery) == nil; i++ {
			// Without a host that is back, a dial fails after some seconds, which must not delay others.
			dialling.Go(func() { _ = made.Dial(raging, g.cluster.Gateway, endpointOf(clusters[i%len(clusters)])) })
		}
	})
	back, err := wait()
	over()
	dialling.Wait()
	back.dials = made
	return back, err
}

func (g *tunnelled) rowsOfReturn(r returned, tunnels, changes int) {
	g.row(table.Row{Figure: "First tunnel back after the manager's death", Value: table.Duration(r.first)})
	for _, last := range []struct {
		of   string
		took time.Duration
	}{{table.Count(g.options.Hosts) + " hosts", r.hosts}, {table.Count(tunnels) + " tunnels", r.tunnels}} {
		g.row(table.Row{
			Figure: "Last of " + last.of + " back after", Value: table.Duration(last.took),
			Target: "below " + table.Duration(backLimit), Missed: r.missing > 0 || last.took >= backLimit,
		})
	}
	g.row(table.Row{Figure: "Hosts and tunnels that did not come back", Value: table.Count(r.missing), Target: "0", Missed: r.missing > 0})
	g.row(table.Row{Figure: "Conditions that changed", Value: table.Count(changes), Target: "0", Missed: changes > 0})
	row := table.Row{
		Figure: fmt.Sprintf("Dial meanwhile, 99th percentile of %d (%d failed)", len(r.dials.Took), r.dials.Failed),
		Value:  "no dial", Target: "below " + table.Duration(dialP99), Missed: true,
	}
	if len(r.dials.Took) > 0 {
		p99 := measure.Quantile(r.dials.Took, 0.99)
		row.Value, row.Missed = table.Duration(p99), p99 >= dialP99
	}
	g.row(row)
}

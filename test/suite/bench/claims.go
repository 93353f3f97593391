package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/replay"
)

const (
	// claimWrites is the target for the writes from a claim to the provisioned machine.
	claimWrites = 8
	// roundShare is the share of all hosts (1/roundShare) that claim in one round. One garbage collection of a large fleet
	// takes as long as twenty claims, so a round needs many claims.
	roundShare = 40
	// rounds is the number of rounds; the figure is their median.
	rounds = 3
	// idleShare is the share of Options.Rest (1/idleShare) during which the cost of idle hosts is measured.
	idleShare = 40
	// noGrowth is the largest ratio that counts as no growth.
	noGrowth = 1.2
)

// measureClaims measures claims in fleets of growing size, and finally claims of half of all hosts at once.
func measureClaims(ctx context.Context, g *rig) error {
	stages := []int{g.options.Hosts / 10, g.options.Hosts * 3 / 10, g.options.Hosts}
	// The machines of all stages exist from the beginning, so that all stages have the same number of machines.
	for _, free := range stages {
		for round := range rounds {
			if err := g.machines.CreateMachines(ctx, roundCluster(free, round), g.roundSize()); err != nil {
				return err
			}
		}
	}
	var costs []time.Duration
	for _, free := range stages {
		cost, err := g.measureStage(ctx, free)
		if err != nil {
			return err
		}
		costs = append(costs, cost)
	}
	growth := costs[len(costs)-1].Seconds() / costs[0].Seconds()
	g.row(table.Row{
		Figure: "Growth of that with ten times as many hosts", Value: table.Ratio(growth, 1), Target: fmt.Sprintf("%.1fx", noGrowth), Missed: growth > noGrowth,
	})
	g.note("The cost of a claim is taken from %s machines at a time, without what the hosts cost at rest: the median of %d times, with the least and the most. "+
		"Each time as many hosts are free, as new ones take the place of those that were claimed; a host that was reset before would be written less often. "+
		"The machines of all stages exist from the beginning.", table.Count(g.roundSize()), rounds)
	return g.measureRush(ctx)
}

// roundSize returns the number of machines in a round.
func (g *rig) roundSize() int { return max(g.options.Hosts/roundShare, 1) }

// roundCluster returns the name of the Cluster for a round with the given number of free hosts.
func roundCluster(free, round int) string { return fmt.Sprintf("stage-%d-%d", free, round) }

// measureStage returns the manager's CPU time for each machine with the given number of free hosts.
func (g *rig) measureStage(ctx context.Context, free int) (time.Duration, error) {
	if err := g.grow(ctx, free); err != nil {
		return 0, err
	}
	p := measure.Process(g.cluster.Managers()[0].PID())
	idle, _, err := g.atRest(ctx, p, func() error { return measure.Pause(ctx, g.options.Rest/idleShare) })
	if err != nil {
		return 0, err
	}
	var costs []time.Duration
	for round := range rounds {
		if err := g.grow(ctx, free); err != nil {
			return 0, err
		}
		b, err := g.claimAtOnce(ctx, roundCluster(free, round), g.roundSize())
		if err != nil {
			return 0, err
		}
		cost := b.cpu - time.Duration(idle*float64(b.busy))
		costs = append(costs, max(cost, 1)/time.Duration(g.roundSize()))
	}
	median := measure.Quantile(costs, 0.5)
	g.row(table.Row{
		Figure: fmt.Sprintf("CPU of the manager a machine, %s free hosts", table.Count(free)),
		Value:  fmt.Sprintf("%s (%s to %s)", table.Duration(median), table.Duration(slices.Min(costs)), table.Duration(slices.Max(costs))),
	})
	return median, nil
}

// measureRush releases machines for half of all hosts at once.
func (g *rig) measureRush(ctx context.Context) error {
	if err := g.grow(ctx, g.options.Hosts); err != nil {
		return err
	}
	machines := g.options.Hosts / 2
	if err := g.machines.CreateMachines(ctx, "rush", machines); err != nil {
		return err
	}
	var b batch
	if err := g.profiled(ctx, "rush", g.cluster.Managers()[0], func() (err error) {
		b, err = g.claimAtOnce(ctx, "rush", machines)
		return err
	}); err != nil {
		return err
	}
	doubles, err := g.machines.Doubles(ctx)
	if err != nil {
		return err
	}
	t, err := replay.New(ctx, g.admin, namespace, bareNamespace)
	if err != nil {
		return err
	}
	g.progress.Say("Writing the same bare")
	if err := t.Create(ctx, machines); err != nil {
		return err
	}
	start := time.Now()
	if err := bare.Each(ctx, machines, atOnce, t.Replay(b.writes, machines)); err != nil {
		return err
	}
	bareTook := time.Since(start)
	writes := float64(b.writes.Only(measure.Write.Object).Total()) / float64(machines)
	g.row(table.Row{
		Figure: fmt.Sprintf("%s machines at once for %s hosts: all are provisioned after", table.Count(machines), table.Count(g.options.Hosts)),
		Value:  table.Duration(b.took), Bare: table.Duration(bareTook), Ratio: table.Ratio(b.took.Seconds(), bareTook.Seconds()),
		Target: fmt.Sprintf("%.1fx", bareRatio), Missed: b.took.Seconds() > bareRatio*bareTook.Seconds(),
	})
	g.row(table.Row{Figure: "Hosts claimed twice, machines with two hosts", Value: table.Count(doubles), Target: "0", Missed: doubles > 0})
	g.row(table.Row{
		Figure: "Writes to the API server a machine, from claim to provisioned", Value: table.Number(writes),
		Target: fmt.Sprintf("at most %d", claimWrites), Missed: writes > claimWrites,
	})
	g.note("Cluster API's controllers are switched off: Machines with bootstrap data, their Secrets and ElementalMachines are made as they would make them, and wait for their cluster's infrastructure. "+
		"One write, that it is provisioned, releases all machines of a cluster at once; the time ends when the last is provisioned. Each host fetches its data, and any data succeeds at once. "+
		"Bare are the same writes, Events included, to copies of the same objects in another namespace, by a plain client, %d at a time. "+
		"Writes are the API server's own count, without Events and leases. All: %s.", atOnce, b.writes)
	return nil
}

// grow adds hosts until the given number are free.
func (g *rig) grow(ctx context.Context, free int) error {
	now, err := g.count(ctx)
	if err != nil || now == free {
		return err
	}
	g.progress.Say("Adding hosts until %s are free", table.Count(free))
	if err := g.gather(ctx, free-now); err != nil {
		return err
	}
	if _, err := g.quiet(ctx); err != nil {
		return err
	}
	if now, err = g.count(ctx); err == nil && now != free {
		err = fmt.Errorf("%d hosts are free, not %d", now, free)
	}
	return err
}

// count returns the number of hosts without a claim.
func (g *rig) count(ctx context.Context) (int, error) {
	hosts := &infrav1.ElementalHostList{}
	if err := g.admin.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("counting free hosts: %w", err)
	}
	free := 0
	for i := range hosts.Items {
		if hosts.Items[i].Spec.Claim == nil {
			free++
		}
	}
	return free, nil
}

// batch has the costs of machines that were released at once.
type batch struct {
	// took is the time until all machines are provisioned, busy the time until the manager was idle, and cpu its CPU time
	// meanwhile.
	took, busy, cpu time.Duration
	// writes are the writes that the API server accepted, Events included.
	writes measure.Writes
}

// claimAtOnce releases all machines of a cluster at once, and waits until they are provisioned.
func (g *rig) claimAtOnce(ctx context.Context, cluster string, count int) (batch, error) {
	before, err := g.quiet(ctx)
	if err != nil {
		return batch{}, err
	}
	watch, err := g.machines.WatchProvisioned(ctx, cluster)
	if err != nil {
		return batch{}, err
	}
	defer watch.Stop()
	p := measure.Process(g.cluster.Managers()[0].PID())
	cpu, err := p.CPU()
	if err != nil {
		return batch{}, err
	}
	start := time.Now()
	if err := g.machines.Release(ctx, cluster); err != nil {
		return batch{}, err
	}
	if err := g.machines.AwaitProvisioned(ctx, watch, count); err != nil {
		return batch{}, err
	}
	b := batch{took: time.Since(start)}
	after, err := g.quiet(ctx)
	if err != nil {
		return batch{}, err
	}
	end, err := p.CPU()
	if err != nil {
		return batch{}, err
	}
	b.busy, b.cpu = time.Since(start), end-cpu
	b.writes = after.Since(before).Only(measure.Write.Accepted).Only(notLease).Only(notOfCore)
	return b, nil
}

// notOfCore excludes the writes of release, which stands in for Cluster API's core.
func notOfCore(w measure.Write) bool { return w.Group != clusterv1.GroupVersion.Group }

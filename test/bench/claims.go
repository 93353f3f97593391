package bench

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/table"
)

const (
	// claimWrites is the target from a claim to the machine's provisioning.
	claimWrites = 8
	// stageShare is the share of all hosts that the cost of a claim is taken from. One collection of a large fleet's
	// garbage takes as long as a score of claims, and so there must be many.
	stageShare = 20
	// idleShare is the share of Options.Rest for which it is measured what hosts cost that have nothing to do.
	idleShare = 40
)

// measureClaims has machines claim hosts of ever larger fleets, and in the end half of all hosts at once.
func measureClaims(ctx context.Context, g *rig) error {
	batch := max(g.options.Hosts/stageShare, 1)
	var costs []float64
	for _, free := range []int{g.options.Hosts / 10, g.options.Hosts * 3 / 10, g.options.Hosts} {
		if err := g.grow(ctx, free); err != nil {
			return err
		}
		b, err := g.claimAtOnce(ctx, fmt.Sprintf("stage-%d", free), batch)
		if err != nil {
			return err
		}
		costs = append(costs, b.cpu.Seconds()/float64(batch))
		g.row(table.Row{
			Figure: fmt.Sprintf("CPU of the manager a machine, %s free hosts", table.Count(free)), Value: table.Duration(b.cpu / time.Duration(batch)),
		})
	}
	growth := costs[len(costs)-1] / costs[0]
	g.row(table.Row{
		Figure: "Growth of that with ten times as many hosts", Value: table.Ratio(growth, 1), Target: fmt.Sprintf("%.1fx", noGrowth), Missed: growth > noGrowth,
	})
	g.note("The cost of a claim is taken from %s machines at a time, without what the hosts cost at rest.", table.Count(batch))
	return g.measureRush(ctx)
}

// noGrowth is what counts as none: two measurements of one thing differ by as much.
const noGrowth = 1.2

// measureRush releases machines for half of all hosts at once.
func (g *rig) measureRush(ctx context.Context) error {
	if err := g.grow(ctx, g.options.Hosts); err != nil {
		return err
	}
	machines := g.options.Hosts / 2
	var b batch
	if err := g.profiled(ctx, "rush", g.cluster.Managers()[0], func() (err error) {
		b, err = g.claimAtOnce(ctx, "rush", machines)
		return err
	}); err != nil {
		return err
	}
	doubles, err := g.doubles(ctx)
	if err != nil {
		return err
	}
	t, err := g.newTemplate(ctx)
	if err != nil {
		return err
	}
	g.progress.Say("Writing the same bare")
	if err := t.create(ctx, machines); err != nil {
		return err
	}
	start := time.Now()
	if err := bare.Each(ctx, machines, atOnce, t.replay(b.writes, machines)); err != nil {
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

// grow adds hosts until so many are free.
func (g *rig) grow(ctx context.Context, free int) error {
	now, err := g.count(ctx)
	if err != nil {
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

// count counts the hosts without a claim.
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

// batch is what machines cost that were released at once.
type batch struct {
	// took is the time until all are provisioned, cpu the manager's until it had no more to do, beyond what it takes at rest.
	took, cpu time.Duration
	// writes are those that the API server has accepted, Events included.
	writes measure.Writes
}

// claimAtOnce creates the machines of a cluster, releases them all at once, and waits until they are provisioned.
func (g *rig) claimAtOnce(ctx context.Context, cluster string, count int) (batch, error) {
	if err := g.createCluster(ctx, cluster); err != nil {
		return batch{}, err
	}
	g.progress.Say("Creating %s machines", table.Count(count))
	if err := bare.Each(ctx, count, atOnce, func(ctx context.Context, i int) error {
		return g.createMachine(ctx, cluster, fmt.Sprintf("%s-%05d", cluster, i))
	}); err != nil {
		return batch{}, err
	}
	before, err := g.quiet(ctx)
	if err != nil {
		return batch{}, err
	}
	watch, err := g.watchProvisioned(ctx, cluster)
	if err != nil {
		return batch{}, err
	}
	defer watch.Stop()
	p := measure.Process(g.cluster.Managers()[0].PID())
	idle, _, err := g.atRest(ctx, p, func() error { return pause(ctx, g.options.Rest/idleShare) })
	if err != nil {
		return batch{}, err
	}
	cpu, err := p.CPU()
	if err != nil {
		return batch{}, err
	}
	start := time.Now()
	if err := g.release(ctx, cluster); err != nil {
		return batch{}, err
	}
	if err := g.awaitProvisioned(ctx, watch, count); err != nil {
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
	b.cpu = max(end-cpu-time.Duration(idle*float64(time.Since(start))), 1)
	b.writes = after.Since(before).Only(measure.Write.Accepted).Only(notLease).Only(notOfCore)
	return b, nil
}

// notOfCore leaves out what release writes in the place of Cluster API's core.
func notOfCore(w measure.Write) bool { return w.Group != clusterv1.GroupVersion.Group }

// doubles counts hosts that several machines have chosen, and machines that several hosts are claimed by.
func (g *rig) doubles(ctx context.Context) (int, error) {
	hosts, machines := &infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{}
	for _, list := range []client.ObjectList{hosts, machines} {
		if err := g.admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return 0, fmt.Errorf("looking for doubles: %w", err)
		}
	}
	doubles := 0
	claimed, chosen := map[string]bool{}, map[string]string{}
	for i := range machines.Items {
		ref := machines.Items[i].Spec.HostRef
		if ref == nil {
			continue
		}
		if chosen[ref.Name] != "" {
			doubles++
		}
		chosen[ref.Name] = ref.ClaimID
	}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Spec.Claim == nil {
			continue
		}
		if claimed[h.Spec.Claim.MachineName] || chosen[h.Name] != h.Spec.Claim.ID {
			doubles++
		}
		claimed[h.Spec.Claim.MachineName] = true
	}
	return doubles, nil
}

// provisioned tells whether a machine is.
func provisioned(m *infrav1.ElementalMachine) bool {
	return ptr.Deref(m.Status.Initialization.Provisioned, false)
}

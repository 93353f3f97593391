package bench

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/conditions"
)

// backLimit is the target for the reconnection of all hosts after a manager's death.
const backLimit = time.Minute

// measureFailover kills the leader of two managers.
func measureFailover(ctx context.Context, g *rig) error {
	if err := g.gather(ctx, g.options.Hosts); err != nil {
		return err
	}
	if err := measure.Pause(ctx, aftermath); err != nil {
		return err
	}
	if _, err := g.quiet(ctx); err != nil {
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
	if err := g.until(ctx, "the other manager", func(ctx context.Context) (bool, error) { return g.connected(ctx) > 0, nil }); err != nil {
		return err
	}
	first := time.Since(start)
	var back int
	if err := g.profiled(ctx, "return", g.cluster.Managers()[1], func() (err error) {
		back, err = g.awaitConnected(ctx, 0, stepTimeout)
		return err
	}); err != nil {
		return err
	}
	last := time.Since(start)
	// Missing hosts are reported as disconnected after the grace period.
	watched := g.options.Rest / 4
	g.progress.Say("Watching conditions until %s after the death", watched)
	if err := measure.Pause(ctx, time.Until(start.Add(watched))); err != nil {
		return err
	}
	if err := v.Stop(); err != nil {
		return err
	}
	for _, change := range v.Changes[:min(len(v.Changes), 10)] {
		g.progress.Say("%s", change)
	}
	missing := g.options.Hosts - back
	g.row(table.Row{Figure: "First host back after", Value: table.Duration(first)})
	g.row(table.Row{
		Figure: "Last of " + table.Count(g.options.Hosts) + " hosts back after", Value: table.Duration(last),
		Target: "below " + table.Duration(backLimit), Missed: missing > 0 || last >= backLimit,
	})
	g.row(table.Row{Figure: "Hosts that did not come back", Value: table.Count(missing), Target: "0", Missed: missing > 0})
	g.row(table.Row{Figure: "Conditions of hosts that changed", Value: table.Count(len(v.Changes)), Target: "0", Missed: len(v.Changes) > 0})
	g.note("Two managers elect a leader with a lease of 15 s, and share an address at which the leader alone listens, as behind the Service. The leader is killed. "+
		"A host is back when it waits for its plan at the other one. Nothing happens to hosts meanwhile, so each condition that changes its status or reason is a wrong one; "+
		"all hosts are watched until %s after the death, and a missing one is said to be after 2 minutes. "+
		"Hosts were written %s times.", watched, table.Count(v.Written))
	return nil
}

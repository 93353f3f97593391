package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// stormTime is the duration in which all new hosts are switched on.
	stormTime = 10 * time.Second
	// stormLimit is the target for the duration of a storm.
	stormLimit = 5 * time.Minute
	// stormClaim is the target for a claim during the storm.
	stormClaim = 2 * time.Second
	// claimEvery is the time from the end of a claim to the next one.
	claimEvery = 500 * time.Millisecond
)

// measureStorm measures the connection of all hosts at once: first new hosts, then hosts whose manager was restarted.
func measureStorm(ctx context.Context, g *rig) error {
	// So that claims during the storm find hosts.
	early := min(g.options.Hosts/10, 100)
	if err := g.gather(ctx, early); err != nil {
		return err
	}
	const cluster = "storm"
	if err := g.machines.CreateCluster(ctx, cluster); err != nil {
		return err
	}
	if err := g.machines.Release(ctx, cluster); err != nil {
		return err
	}
	manager := g.cluster.Managers()[0]

	if err := g.profiled(ctx, "enrol", manager, func() error {
		return g.storm(ctx, cluster, "new", "enrol", func(claim func()) error {
			claim()
			return g.addHosts(ctx, g.options.Hosts-early, stormTime)
		})
	}); err != nil {
		return err
	}
	if err := measure.Pause(ctx, aftermath); err != nil {
		return err
	}
	if err := g.storm(ctx, cluster, "back", "reconnect to a manager that was killed and started", func(claim func()) error {
		manager.Kill()
		defer claim()
		return manager.Start(ctx)
	}); err != nil {
		return err
	}
	g.note("In the first storm hosts that were never there are switched on within %s. In the second one the manager is killed and started at once, and each host tries again on its own. "+
		"Meanwhile one machine after the other is created, %s after the one before had its host; a claim takes from before the Machine is created until its host is bound. "+
		"In the second storm the first one is made when the first host is back: one before that would wait for the manager's start. "+
		"A host has failed that is not connected after %s, and so has a claim that has no host by then.", stormTime, claimEvery, stormLimit)
	return nil
}

// storm starts a storm with raise, makes claims from raise's call of claim until the end, and adds the figures.
func (g *rig) storm(ctx context.Context, cluster, prefix, what string, raise func(claim func()) error) error {
	raging, over := context.WithCancel(ctx)
	defer over()
	var claims []time.Duration
	claiming := make(chan error, 1)
	start := time.Now()
	if err := raise(func() {
		go func() {
			var err error
			claims, err = g.claimDuring(ctx, raging, cluster, prefix)
			claiming <- err
		}()
	}); err != nil {
		return err
	}
	connected, err := g.awaitConnected(ctx, 0, stormLimit-time.Since(start))
	took := time.Since(start)
	over()
	if err := errors.Join(err, <-claiming); err != nil {
		return err
	}
	failed := g.hosts() - connected
	g.row(table.Row{
		Figure: fmt.Sprintf("%s hosts %s: all are connected after", table.Count(g.hosts()), what), Value: table.Duration(took),
		Target: "below " + table.Duration(stormLimit), Missed: failed > 0 || took >= stormLimit,
	})
	g.row(table.Row{Figure: "Hosts that failed", Value: table.Count(failed), Target: "0", Missed: failed > 0})
	g.row(claimsRow(claims))
	return nil
}

// claimsRow returns the row for claims, none of which took longer than stormLimit.
func claimsRow(claims []time.Duration) table.Row {
	row := table.Row{
		Figure: fmt.Sprintf("Longest of %d claims meanwhile (median %s)", len(claims), table.Duration(measure.Quantile(claims, 0.5))),
		Value:  "no claim", Target: "below " + table.Duration(stormClaim), Missed: true,
	}
	if len(claims) > 0 {
		longest := slices.Max(claims)
		row.Value, row.Missed = table.Duration(longest), longest >= stormClaim
		if longest >= stormLimit {
			row.Value = "no host after " + row.Value
		}
	}
	return row
}

// claimDuring makes claims one after the other, from the first connected host until raging ends. It makes at least one
// claim if a host was connected.
func (g *rig) claimDuring(ctx, raging context.Context, cluster, prefix string) ([]time.Duration, error) {
	err := g.until(raging, "the first host", func(ctx context.Context) (bool, error) { return g.connected(ctx) > 0, nil })
	if err != nil && raging.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var claims []time.Duration
	for {
		took, err := g.machines.TimeClaim(ctx, cluster, fmt.Sprintf("%s-%d", prefix, len(claims)), stormLimit)
		if err != nil {
			return nil, err
		}
		claims = append(claims, took)
		next := time.NewTimer(claimEvery)
		select {
		case <-raging.Done():
			next.Stop()
			return claims, nil
		case <-next.C:
		}
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/sites"
)

// maxSites is the number of sites for which targets are defined.
const maxSites = 500

// measureSites changes the version of many clusters of one host at once.
func measureSites(ctx context.Context, r *run) (err error) {
	folder, err := os.MkdirTemp("", "elemental-bundles-")
	if err != nil {
		return fmt.Errorf("making a folder of bundles: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	digest, err := sites.WriteBundle(filepath.Join(folder, "bundle"))
	if err != nil {
		return err
	}
	return onRig(func(ctx context.Context, g *rig) error {
		c := &sites.Client{Admin: g.admin, Machines: g.machines, Count: min(g.options.Hosts, maxSites)}
		if err := makeSites(ctx, g, c); err != nil {
			return err
		}
		return upgradeSites(ctx, g, c, digest)
	}, needs{managers: 1, sites: true, args: []string{"--bundles=" + folder, fmt.Sprintf("--bundle-downloads=%d", sites.Downloads)}})(ctx, r)
}

// makeSites makes the sites, whose hosts are Nodes then.
func makeSites(ctx context.Context, g *rig, c *sites.Client) error {
	if err := g.gather(ctx, c.Count); err != nil {
		return err
	}
	g.progress.Say("Creating %s clusters of one host", table.Count(c.Count))
	if err := c.Create(ctx); err != nil {
		return err
	}
	for i := range c.Count {
		if err := g.until(ctx, "a site to be provisioned", func(ctx context.Context) (bool, error) { return c.IsProvisioned(ctx, i) }); err != nil {
			return err
		}
	}
	if err := c.Join(ctx); err != nil {
		return err
	}
	_, err := g.quiet(ctx)
	return err
}

// upgradeSites measures the sites at rest, while they fetch the bundle, and while they upgrade.
func upgradeSites(ctx context.Context, g *rig, c *sites.Client, digest string) error {
	p := measure.Process(g.cluster.Managers()[0].PID())
	if err := measure.Pause(ctx, g.options.Rest/aloneShare); err != nil {
		return err
	}
	resting, err := g.watchMemory(ctx, p, g.options.Rest/aloneShare)
	if err != nil {
		return err
	}
	manager := &sites.Manager{Process: p, Metrics: g.cluster.Managers()[0].Metrics, Gauges: g.gauges, API: g.api}
	watch, err := manager.Watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	g.progress.Say("Changing the version of all sites, which are held back")
	if err := c.Hold(ctx, true); err != nil {
		return err
	}
	if err := c.Bump(ctx); err != nil {
		return err
	}
	if err := g.until(ctx, "sites to want the release", func(ctx context.Context) (bool, error) {
		return inState(ctx, c, infrav1.UpgradeWaitingForReleaseReason)
	}); err != nil {
		return err
	}
	g.progress.Say("Creating the release: all sites fetch the bundle")
	start := time.Now()
	if err := c.Pin(ctx, digest, sites.BundleSize); err != nil {
		return err
	}
	if err := g.until(ctx, "sites to have the bundle", func(ctx context.Context) (bool, error) { return inState(ctx, c, infrav1.UpgradeHeldReason) }); err != nil {
		return err
	}
	staged := time.Since(start)
	g.progress.Say("Releasing all sites")
	start = time.Now()
	if err := c.Hold(ctx, false); err != nil {
		return err
	}
	if err := g.until(ctx, "sites to upgrade", func(ctx context.Context) (bool, error) {
		ended, err := c.Follow(ctx)
		return ended == c.Count, err
	}); err != nil {
		return err
	}
	upgraded := time.Since(start)
	if _, err := g.quiet(ctx); err != nil {
		return err
	}
	if err := watch.Stop(); err != nil {
		return err
	}
	report, err := c.Report(ctx, watch, sites.Times{Staged: staged, Upgraded: upgraded}, middle(resting), g.options.Rest/aloneShare)
	if err != nil {
		return err
	}
	g.add(report)
	return nil
}

// inState reports whether all sites have that reason.
func inState(ctx context.Context, c *sites.Client, reason string) (bool, error) {
	states, err := c.States(ctx)
	return states[reason] == c.Count, err
}

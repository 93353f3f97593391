package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/sites"
)

const (
	// maxSites is the number of sites for which targets are defined.
	maxSites = 500
	// siteDownloads is the manager's flag --bundle-downloads.
	siteDownloads = 32
	// bundleSize is the size of the bundle in bytes: small, because all sites share this machine. siteRate is how many bytes
	// a second a site downloads: a line of 32 Mbit/s.
	bundleSize = 8 << 20
	siteRate   = 4 << 20
	// sitesMemory is the target for the manager's memory, compared with the same fleet at rest.
	sitesMemory = 1.5
	// siteWrites and siteReads are the targets for the manager's requests to the API server for each site.
	siteWrites = 24
	siteReads  = 24
	// runningDownloads is the manager's metric of downloads.
	runningDownloads = `elemental_agent_api_downloads{kind="bundle"}`
	// sentRequests is its metric of requests to the API server.
	sentRequests = "rest_client_requests_total"
)

// measureSites changes the version of many clusters of one host at once.
func measureSites(ctx context.Context, r *run) (err error) {
	folder, err := os.MkdirTemp("", "elemental-bundles-")
	if err != nil {
		return fmt.Errorf("making a folder of bundles: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	digest, err := writeBundle(filepath.Join(folder, "bundle"))
	if err != nil {
		return err
	}
	return onRig(func(ctx context.Context, g *rig) error {
		c := &sites.Client{Admin: g.admin, Machines: g.machines, Count: min(g.options.Hosts, maxSites)}
		if err := g.makeSites(ctx, c); err != nil {
			return err
		}
		return g.upgradeSites(ctx, c, digest)
	}, needs{managers: 1, sites: true, args: []string{"--bundles=" + folder, fmt.Sprintf("--bundle-downloads=%d", siteDownloads)}})(ctx, r)
}

// writeBundle writes random bytes, which can't be compressed, and returns their digest.
func writeBundle(file string) (digest string, _ error) {
	content := make([]byte, bundleSize)
	_, _ = rand.Read(content) // it never fails
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return "", fmt.Errorf("writing a bundle: %w", err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// makeSites makes the sites, whose hosts are Nodes then.
func (g *rig) makeSites(ctx context.Context, c *sites.Client) error {
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
func (g *rig) upgradeSites(ctx context.Context, c *sites.Client, digest string) error {
	p := measure.Process(g.cluster.Managers()[0].PID())
	if err := pause(ctx, g.options.Rest/aloneShare); err != nil {
		return err
	}
	resting, err := g.watchMemory(ctx, p, g.options.Rest/aloneShare)
	if err != nil {
		return err
	}
	before, err := g.spent(ctx, p)
	if err != nil {
		return err
	}
	watch := g.watchSites(ctx, p)
	defer watch.stop()
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
	if err := c.Pin(ctx, digest, bundleSize); err != nil {
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
	looks, err := watch.stop()
	if err != nil {
		return err
	}
	after, err := g.spent(ctx, p)
	if err != nil {
		return err
	}
	strangers, err := c.Strangers(ctx)
	if err != nil {
		return err
	}
	g.reportSites(c.Count, siteFigures{
		staged: staged, upgraded: upgraded, resting: middle(resting), looks: looks, spent: after.since(before), strangers: strangers,
	})
	return nil
}

// inState reports whether all sites have that reason.
func inState(ctx context.Context, c *sites.Client, reason string) (bool, error) {
	states, err := c.States(ctx)
	return states[reason] == c.Count, err
}

// siteFigures are the figures of an upgrade of sites.
type siteFigures struct {
	staged, upgraded time.Duration
	// resting is the manager's memory at rest.
	resting uint64
	looks   siteLooks
	spent   siteCosts
	// strangers are Machines that are not on the host on which they were.
	strangers int
}

func (g *rig) reportSites(count int, f siteFigures) {
	perSite := func(n float64) float64 { return n / float64(count) }
	g.row(table.Row{Figure: fmt.Sprintf("%s sites have fetched a bundle of %s after", table.Count(count), table.MiB(bundleSize)), Value: table.Duration(f.staged)})
	g.row(table.Row{
		Figure: "Downloads at a time, at most", Value: table.Count(f.looks.downloads), Target: fmt.Sprintf("at most %d", siteDownloads),
		Missed: f.looks.downloads > siteDownloads,
	})
	g.row(table.Row{Figure: fmt.Sprintf("%s sites released at once are upgraded after", table.Count(count)), Value: table.Duration(f.upgraded)})
	g.row(table.Row{Figure: "Machines that were replaced or reset", Value: table.Count(f.strangers), Target: "0", Missed: f.strangers > 0})
	most := float64(slices.Max(f.looks.memory))
	g.row(table.Row{
		Figure: "Memory of the manager, at most; bare is the fleet at rest", Value: table.MiB(most), Bare: table.MiB(float64(f.resting)),
		Ratio: table.Ratio(most, float64(f.resting)), Target: fmt.Sprintf("%.1fx", sitesMemory), Missed: most > sitesMemory*float64(f.resting),
	})
	writes := perSite(f.spent.writes)
	g.row(table.Row{
		Figure: "Writes of the manager a site, without Events", Value: table.Number(writes), Target: fmt.Sprintf("at most %d", siteWrites),
		Missed: writes > siteWrites,
	})
	g.row(table.Row{Figure: "Events a site", Value: table.Number(perSite(f.spent.events))})
	reads := perSite(f.spent.reads)
	g.row(table.Row{
		Figure: "Reads past the cache a site", Value: table.Number(reads), Target: fmt.Sprintf("at most %d", siteReads), Missed: reads > siteReads,
	})
	g.row(table.Row{Figure: "CPU of the manager a site", Value: table.Duration(f.spent.cpu / time.Duration(count))})
	g.note("Each site is a cluster of one virtual host. All are held back by the label and get a new version. Then its release is created, so all fetch the bundle at once; when all have it, all are released at once. "+
		"The manager and the agent's connection are real: each host downloads %s of random bytes from the manager, which serves %d at a time (--bundle-downloads), and verifies them. A site gets at most %s a second. "+
		"What is simulated: hosts keep no bytes, report no tenths, and their steps take no time; Cluster API's part is written by the benchmark, without its reads and its calls of hooks: "+
		"the conditions of a KubeadmControlPlane, the new version of a marked Machine, and the end of its update. "+
		"Memory is the RSS of the process, two looks a second; at rest it is the median of %s. Requests to the API server are the manager's own count; at rest it sends none. "+
		"All writes, with those of the user and of Cluster API's part, but without Events: %s.",
		table.MiB(bundleSize), siteDownloads, table.MiB(siteRate), g.options.Rest/aloneShare, f.spent.all)
}

package sites

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// Downloads is the manager's flag --bundle-downloads.
	Downloads = 32
	// BundleSize is the size of the bundle in bytes: small, because all sites share this machine.
	BundleSize = 8 << 20
	// Rate is how many bytes a second a site downloads: a line of 32 Mbit/s.
	Rate = 4 << 20
	// memoryRatio is the target for the manager's memory, compared with the same fleet at rest.
	memoryRatio = 1.5
	// maxWrites and maxReads are the targets for the manager's requests to the API server for each site.
	maxWrites = 24
	maxReads  = 24
)

// WriteBundle writes random bytes, which can't be compressed, and returns their digest.
func WriteBundle(file string) (digest string, _ error) {
	content := make([]byte, BundleSize)
	_, _ = rand.Read(content) // it never fails
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return "", fmt.Errorf("writing a bundle: %w", err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// Times are how long the steps of an upgrade took.
type Times struct{ Staged, Upgraded time.Duration }

// Report returns the figures of an upgrade of all sites, after the watch has been stopped. resting is the manager's memory
// at rest, which was watched for a time.
func (c *Client) Report(ctx context.Context, w *Watch, times Times, resting uint64, restingFor time.Duration) (figures.Report, error) {
	after, err := w.manager.spent(ctx)
	if err != nil {
		return figures.Report{}, err
	}
	strangers, err := c.strangers(ctx)
	if err != nil {
		return figures.Report{}, err
	}
	spent, count := after.since(w.before), table.Count(c.Count)
	perSite := func(n float64) float64 { return n / float64(c.Count) }
	most, writes, reads := float64(slices.Max(w.memory)), perSite(spent.writes), perSite(spent.reads)
	rows := []table.Row{
		{Figure: fmt.Sprintf("%s sites have fetched a bundle of %s after", count, table.MiB(BundleSize)), Value: table.Duration(times.Staged)},
		{
			Figure: "Downloads at a time, at most", Value: table.Count(w.downloads), Target: fmt.Sprintf("at most %d", Downloads),
			Missed: w.downloads > Downloads,
		},
		{Figure: fmt.Sprintf("%s sites released at once are upgraded after", count), Value: table.Duration(times.Upgraded)},
		{Figure: "Machines that were replaced or reset", Value: table.Count(strangers), Target: "0", Missed: strangers > 0},
		{
			Figure: "Memory of the manager, at most; bare is the fleet at rest", Value: table.MiB(most), Bare: table.MiB(float64(resting)),
			Ratio: table.Ratio(most, float64(resting)), Target: fmt.Sprintf("%.1fx", memoryRatio), Missed: most > memoryRatio*float64(resting),
		},
		{
			Figure: "Writes of the manager a site, without Events", Value: table.Number(writes), Target: fmt.Sprintf("at most %d", maxWrites),
			Missed: writes > maxWrites,
		},
		{Figure: "Writes that conflicted a site", Value: table.Number(perSite(spent.conflicts))},
		{Figure: "Events a site", Value: table.Number(perSite(spent.events))},
		{Figure: "Reads past the cache a site", Value: table.Number(reads), Target: fmt.Sprintf("at most %d", maxReads), Missed: reads > maxReads},
		{Figure: "CPU of the manager a site", Value: table.Duration(spent.cpu / time.Duration(c.Count))},
	}
	note := fmt.Sprintf("Each site is a cluster of one virtual host. All are held back by the label and get a new version. Then its release is created, so all fetch the bundle at once; when all have it, all are released at once. "+
		"The manager and the agent's connection are real: each host downloads %s of random bytes from the manager, which serves %d at a time (--bundle-downloads), and verifies them. A site gets at most %s a second. "+
		"What is simulated: hosts keep no bytes, report no tenths, and their steps take no time; Cluster API's part is written by the benchmark, without its reads and its calls of hooks: "+
		"the conditions of a KubeadmControlPlane, the new version of a marked Machine, and the end of its update. "+
		"Memory is the RSS of the process, two looks a second; at rest it is the median of %s. Requests to the API server are the manager's own count; at rest it sends none. "+
		"All writes, with those of the user and of Cluster API's part, but without Events: %s.",
		table.MiB(BundleSize), Downloads, table.MiB(Rate), restingFor, spent.all)
	return figures.Report{Rows: rows, Notes: []string{note}}, nil
}

package sites

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

const (
	// lookInterval is the time between two looks at the manager.
	lookInterval = 500 * time.Millisecond
	// runningDownloads is the manager's metric of downloads.
	runningDownloads = `elemental_agent_api_downloads{kind="bundle"}`
	// sentRequests is its metric of requests to the API server.
	sentRequests = "rest_client_requests_total"
)

// costs is what the manager has spent.
type costs struct {
	cpu time.Duration
	// requests to the API server: writes of objects, those that conflicted, Events, and reads past the cache.
	writes, conflicts, events, reads float64
	// all are the writes that the API server has accepted, of whoever.
	all measure.Writes
}

func (c costs) since(before costs) costs {
	return costs{
		cpu:    c.cpu - before.cpu,
		writes: c.writes - before.writes, conflicts: c.conflicts - before.conflicts, events: c.events - before.events, reads: c.reads - before.reads,
		all: c.all.Since(before.all).Only(measure.Write.Object),
	}
}

// Manager is the measured manager.
type Manager struct {
	Process measure.Process
	// Metrics is the URL of its metrics.
	Metrics string
	Gauges  *measure.Gauges
	API     *measure.APIServer
}

// spent returns what the manager has spent since its start. It creates nothing but Events.
func (m *Manager) spent(ctx context.Context) (costs, error) {
	var c costs
	var err error
	if c.cpu, err = m.Process.CPU(); err != nil {
		return c, err
	}
	for n, labels := range map[*float64][]string{
		&c.writes: {`method="PATCH"`, `code="200"`}, &c.conflicts: {`method="PATCH"`, `code="409"`},
		&c.events: {`method="POST"`}, &c.reads: {`method="GET"`},
	} {
		if *n, err = m.Gauges.Sum(ctx, m.Metrics, sentRequests, labels...); err != nil {
			return c, err
		}
	}
	c.all, err = m.API.Writes(ctx)
	return c, err
}

// Watch is a watch of the manager during an upgrade.
type Watch struct {
	manager *Manager
	before  costs
	cancel  context.CancelFunc
	ended   chan struct{}

	// memory are the looks at its memory, downloads is the largest number of downloads at a time.
	memory    []uint64
	downloads int
	failure   error
}

// Watch begins to watch the manager until the watch is stopped or ctx ends.
func (m *Manager) Watch(ctx context.Context) (*Watch, error) {
	before, err := m.spent(ctx)
	if err != nil {
		return nil, err
	}
	w := &Watch{manager: m, before: before, ended: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.run(ctx)
	return w, nil
}

func (w *Watch) run(ctx context.Context) {
	defer close(w.ended)
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		err := w.look(ctx)
		if ctx.Err() != nil {
			return // a look that the end has interrupted
		}
		if w.failure = err; err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look adds a look at the manager.
func (w *Watch) look(ctx context.Context) error {
	bytes, err := w.manager.Process.Memory()
	if err != nil {
		return err
	}
	w.memory = append(w.memory, bytes)
	running, err := w.manager.Gauges.Read(ctx, w.manager.Metrics, runningDownloads)
	w.downloads = max(w.downloads, int(running))
	return err
}

// Stop ends the watch, if it has not ended. It may be called again.
func (w *Watch) Stop() error {
	w.cancel()
	<-w.ended
	return w.failure
}

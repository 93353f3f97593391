package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

// siteCosts is what the manager has spent.
type siteCosts struct {
	cpu time.Duration
	// requests to the API server: writes of objects, Events, and reads past the cache.
	writes, events, reads float64
	// all are the writes that the API server has accepted, of whoever.
	all measure.Writes
}

func (c siteCosts) since(before siteCosts) siteCosts {
	return siteCosts{
		cpu: c.cpu - before.cpu, writes: c.writes - before.writes, events: c.events - before.events, reads: c.reads - before.reads,
		all: c.all.Since(before.all).Only(measure.Write.Object),
	}
}

// spent returns what the manager has spent since its start. It creates nothing but Events.
func (g *rig) spent(ctx context.Context, p measure.Process) (siteCosts, error) {
	var c siteCosts
	var err error
	if c.cpu, err = p.CPU(); err != nil {
		return c, err
	}
	for method, n := range map[string]*float64{"PATCH": &c.writes, "POST": &c.events, "GET": &c.reads} {
		if *n, err = g.gauges.Sum(ctx, g.cluster.Managers()[0].Metrics, sentRequests, fmt.Sprintf("method=%q", method)); err != nil {
			return c, err
		}
	}
	c.all, err = g.api.Writes(ctx)
	return c, err
}

// siteLooks is what was seen of the manager.
type siteLooks struct {
	memory []uint64
	// downloads is the largest number of downloads at a time.
	downloads int
}

// siteWatch looks at the manager often.
type siteWatch struct {
	// stop ends it, and returns what was seen. Further calls return the same.
	stop func() (siteLooks, error)
}

func (g *rig) watchSites(ctx context.Context, p measure.Process) siteWatch {
	ctx, cancel := context.WithCancel(ctx)
	var looks siteLooks
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if failure = g.look(ctx, p, &looks); failure != nil {
				return
			}
			_ = pause(ctx, often)
		}
	}()
	return siteWatch{stop: sync.OnceValues(func() (siteLooks, error) {
		cancel()
		<-ended
		return looks, failure
	})}
}

// look adds a look at the manager.
func (g *rig) look(ctx context.Context, p measure.Process, to *siteLooks) error {
	bytes, err := p.Memory()
	if err != nil {
		return err
	}
	to.memory = append(to.memory, bytes)
	running, err := g.gauges.Read(ctx, g.cluster.Managers()[0].Metrics, runningDownloads)
	if ctx.Err() != nil {
		return nil // the end of the watch
	}
	to.downloads = max(to.downloads, int(running))
	return err
}

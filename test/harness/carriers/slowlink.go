package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/carriers/place"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// roundTrip and loss are those of the slow link. Packets are lost in both directions.
	roundTrip = 50 * time.Millisecond
	loss      = 0.01
	// seeds is on how many links each carrier is measured, each with losses of its own.
	seeds = 3
	// slowRatio is the target for one stream beside TLS without a tunnel.
	slowRatio = 0.8
)

// onSlowLink measures the tunnel and TLS without it on links of their own. All are measured at the same time: none needs
// much of the processor, and one after the other would take long.
func (m *measurement) onSlowLink(ctx context.Context, over time.Duration) error {
	type result struct {
		load   load
		kind   string
		rate   float64
		failed error
	}
	var mu sync.Mutex
	var results []result
	var running sync.WaitGroup
	for seed := range uint64(seeds) {
		for _, l := range loads() {
			for _, k := range kinds()[:2] {
				running.Go(func() {
					rate, err := slowly(ctx, k, l, seed, over)
					mu.Lock()
					defer mu.Unlock()
					results = append(results, result{l, k.name, rate, err})
				})
			}
		}
	}
	running.Wait()
	carried := map[string]map[load][]float64{"direct": {}, "tunnel": {}}
	for _, r := range results {
		if errors.Is(r.failed, unix.EPERM) {
			m.note("The slow link was not run: it needs root.")
			return nil
		}
		if r.failed != nil {
			return fmt.Errorf("measuring %s on a slow link: %w", r.kind, r.failed)
		}
		carried[r.kind][r.load] = append(carried[r.kind][r.load], r.rate)
	}
	for _, l := range loads() {
		tunnel, direct := median(carried["tunnel"][l]), median(carried["direct"][l])
		row := table.Row{
			Figure: fmt.Sprintf("%s, %s round trip, %s lost, bytes a second; bare: TLS without a tunnel", l, table.Duration(roundTrip), table.Percent(loss)),
			Value:  table.KiB(tunnel), Bare: table.KiB(direct), Ratio: table.Ratio(tunnel, direct),
		}
		if l.streams == 1 {
			row.Target, row.Missed = fmt.Sprintf("at least %.1fx", slowRatio), tunnel < slowRatio*direct
		}
		m.row(row)
	}
	m.note("On the slow link, packets are relayed between two network namespaces, whose TCP has Linux's default congestion control (cubic). Each figure is the median of %d links, measured for %s; all are measured at the same time. "+
		"A tunnel is one TCP connection for all of its streams; without one, each stream has a connection of its own, and so several times the share of a link on which packets are lost.", seeds, over)
	return nil
}

// slowly measures a carrier on a link of its own.
func slowly(ctx context.Context, k kind, l load, seed uint64, over time.Duration) (float64, error) {
	link, err := place.NewLink(roundTrip, loss, seed)
	if err != nil {
		return 0, err
	}
	defer link.Close()
	s, err := newSetup(ctx, link.Manager, link.Host)
	if err != nil {
		return 0, err
	}
	defer s.close()
	return with(ctx, s, k, func(c carrier) (float64, error) { return throughput(ctx, s, c, l.streams, l.up, over) })
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/carriers/place"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// stalls is the number of streams that stall.
	stalls = 100
	// stalledRatio is the target for the 99th percentile of another stream.
	stalledRatio = 2.0
)

// besideStalled measures a stream of a tunnel without and beside streams that nobody reads.
func (m *measurement) besideStalled(ctx context.Context, over time.Duration) error {
	s, err := newSetup(ctx, place.Loopback{}, place.Loopback{})
	if err != nil {
		return err
	}
	defer s.close()
	c, err := newTunnel(ctx, s)
	if err != nil {
		return err
	}
	defer c.close()
	var before, beside []time.Duration
	for range rounds {
		alone, err := latency(ctx, c, over)
		if err != nil {
			return err
		}
		before = append(before, alone...)
		release, err := stall(ctx, c, stalls)
		if err != nil {
			return err
		}
		// Until the windows are full.
		err = measure.Pause(ctx, over)
		if err == nil {
			var took []time.Duration
			took, err = latency(ctx, c, over)
			beside = append(beside, took...)
		}
		release()
		if err != nil {
			return fmt.Errorf("measuring beside %d stalled streams: %w", stalls, err)
		}
	}
	p99, was := measure.Quantile(beside, 0.99), measure.Quantile(before, 0.99)
	m.row(table.Row{
		Figure: fmt.Sprintf("Round trip beside %d stalled streams, 99th percentile; bare: without them", stalls),
		Value:  table.Duration(p99), Bare: table.Duration(was), Ratio: table.Ratio(float64(p99), float64(was)),
		Target: fmt.Sprintf("below %.1fx", stalledRatio), Missed: float64(p99) >= stalledRatio*float64(was),
	})
	return nil
}

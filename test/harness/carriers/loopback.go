package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/carriers/place"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// rounds is how often each carrier is measured, in turn; the median counts.
	rounds = 3
	// many is the larger number of streams.
	many = 8
	// Targets: throughput beside remotedialer, and what the tunnel adds to the median of a round trip.
	throughputRatio = 2.0
	addedLatency    = time.Millisecond
)

// kind is a carrier by name.
type kind struct {
	name string
	make func(context.Context, *setup) (carrier, error)
}

func kinds() []kind {
	return []kind{{"direct", newDirect}, {"tunnel", newTunnel}, {"remotedialer", newRemotedialer}}
}

// load is what is carried.
type load struct {
	streams int
	up      bool
}

func loads() []load { return []load{{1, false}, {many, false}, {1, true}, {many, true}} }

func (l load) String() string {
	direction, noun := "to the manager", "streams"
	if l.up {
		direction = "to the host"
	}
	if l.streams == 1 {
		noun = "stream"
	}
	return fmt.Sprintf("%d %s %s", l.streams, noun, direction)
}

// onLoopback measures all carriers on the loopback, each measurement for a time.
func (m *measurement) onLoopback(ctx context.Context, over time.Duration) error {
	s, err := newSetup(ctx, place.Loopback{}, place.Loopback{})
	if err != nil {
		return err
	}
	defer s.close()
	for _, l := range loads() {
		carried := map[string][]float64{}
		for range rounds {
			for _, k := range kinds() {
				rate, err := with(ctx, s, k, func(c carrier) (float64, error) { return throughput(ctx, s, c, l.streams, l.up, over) })
				if err != nil {
					return fmt.Errorf("measuring %s: %w", k.name, err)
				}
				carried[k.name] = append(carried[k.name], rate)
			}
		}
		m.compare(l, median(carried["tunnel"]), median(carried["direct"]), median(carried["remotedialer"]))
	}
	trips := map[string][]time.Duration{}
	for range rounds {
		for _, k := range kinds() {
			took, err := with(ctx, s, k, func(c carrier) ([]time.Duration, error) { return latency(ctx, c, over) })
			if err != nil {
				return fmt.Errorf("measuring %s: %w", k.name, err)
			}
			trips[k.name] = append(trips[k.name], took...)
		}
	}
	m.compareLatency(trips["tunnel"], trips["direct"], trips["remotedialer"])
	m.note("Streams end at a TCP server of the host; mutual TLS 1.3 is between manager and host. Both are one process. A throughput is the median of %d measurements of %s, "+
		"each of a new tunnel and in turn with the others; round trips are those of %d times %s.", rounds, over, rounds, over)
	return m.besideStalled(ctx, over)
}

// with measures a new carrier, so that nothing is left of the measurement before.
func with[T any](ctx context.Context, s *setup, k kind, do func(carrier) (T, error)) (T, error) {
	c, err := k.make(ctx, s)
	if err != nil {
		var none T
		return none, err
	}
	defer c.close()
	return do(c)
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func (m *measurement) compare(l load, tunnel, direct, remotedialer float64) {
	m.row(table.Row{
		Figure: fmt.Sprintf("%s, bytes a second; bare: TLS without a tunnel", l), Value: table.MiB(tunnel), Bare: table.MiB(direct), Ratio: table.Ratio(tunnel, direct),
	})
	m.row(table.Row{
		Figure: "The same; bare: remotedialer", Value: table.MiB(tunnel), Bare: table.MiB(remotedialer), Ratio: table.Ratio(tunnel, remotedialer),
		Target: fmt.Sprintf("at least %.1fx", throughputRatio), Missed: tunnel < throughputRatio*remotedialer,
	})
}

func (m *measurement) compareLatency(tunnel, direct, remotedialer []time.Duration) {
	for _, q := range []struct {
		name  string
		share float64
	}{{"median", 0.5}, {"99th percentile", 0.99}} {
		t, d, r := measure.Quantile(tunnel, q.share), measure.Quantile(direct, q.share), measure.Quantile(remotedialer, q.share)
		row := table.Row{
			Figure: fmt.Sprintf("Round trip of %d bytes, %s; bare: TLS without a tunnel", message, q.name),
			Value:  table.Duration(t), Bare: table.Duration(d), Ratio: table.Ratio(float64(t), float64(d)),
		}
		if q.share == 0.5 {
			row.Target, row.Missed = "at most "+table.Duration(addedLatency)+" more", t-d > addedLatency
		}
		m.row(row)
		m.row(table.Row{Figure: "The same; bare: remotedialer", Value: table.Duration(t), Bare: table.Duration(r), Ratio: table.Ratio(float64(t), float64(r))})
	}
}

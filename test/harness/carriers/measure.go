package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

// message is what latencies are measured with.
const message = 64

// idleLimit is how long a measurement waits for the first byte.
const idleLimit = 10 * time.Second

// throughput returns the bytes a second that several streams carry together, in a time after a warm-up. A stream that is
// lost counts for what it has carried. A short measurement on a busy machine takes longer, until something was carried.
func throughput(ctx context.Context, s *setup, c carrier, streams int, up bool, over time.Duration) (float64, error) {
	conns := make([]net.Conn, 0, streams)
	var running sync.WaitGroup
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		running.Wait()
	}()
	count, mode := &atomic.Int64{}, byte(source)
	if up {
		count, mode = &s.target.received, sink
	}
	for range streams {
		conn, err := open(ctx, c, mode)
		if err != nil {
			return 0, fmt.Errorf("opening a stream: %w", err)
		}
		conns = append(conns, conn)
		running.Go(func() {
			if up {
				send(conn)
			} else {
				receive(conn, count)
			}
		})
	}
	if err := measure.Pause(ctx, over/4); err != nil {
		return 0, err
	}
	before, began := count.Load(), time.Now()
	for {
		if err := measure.Pause(ctx, over); err != nil {
			return 0, err
		}
		if carried, took := count.Load()-before, time.Since(began); carried > 0 || took > idleLimit {
			return float64(carried) / took.Seconds(), nil
		}
	}
}

// latency returns round trips of a message on one stream, for a time.
func latency(ctx context.Context, c carrier, over time.Duration) ([]time.Duration, error) {
	conn, err := open(ctx, c, echo)
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	defer func() { _ = conn.Close() }()
	var took []time.Duration
	buffer := make([]byte, message)
	for end := time.Now().Add(over); time.Now().Before(end); {
		began := time.Now()
		if _, err := conn.Write(buffer); err != nil {
			return nil, fmt.Errorf("sending a message: %w", err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			return nil, fmt.Errorf("waiting for a message: %w", err)
		}
		took = append(took, time.Since(began))
	}
	return took, ctx.Err()
}

// stall opens streams that nobody reads at either end, and writes until none takes more.
func stall(ctx context.Context, c carrier, streams int) (release func(), err error) {
	var conns []net.Conn
	var running sync.WaitGroup
	release = func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		running.Wait()
	}
	for range streams {
		conn, err := open(ctx, c, stalled)
		if err != nil {
			release()
			return nil, fmt.Errorf("opening a stream: %w", err)
		}
		conns = append(conns, conn)
		running.Go(func() { send(conn) })
	}
	return release, nil
}

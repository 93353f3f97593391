package agent

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/signal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

const (
	// tunnelSpread is within which time after the first answer of a manager its hosts open
	// their tunnels: their polls come first.
	tunnelSpread = 5 * time.Second
	// minTunnelTime is how long a tunnel lasts that a manager has not refused.
	minTunnelTime = time.Minute
)

// tunneller keeps a tunnel open while the plan desires one. A tunnel is opened only while
// the manager answers polls, and lasts without them.
type tunneller struct {
	store   *state.Store
	manager *connection.Manager
	// dial connects the manager to targets; nil turns tunnels off.
	dial   tunnel.Dialer
	bootID string
	clock  retry.Clock
	random func() float64
	log    *slog.Logger
	// wake is raised when the plan or polling may have changed.
	wake    signal.Signal
	polling atomic.Bool
}

// setPolling records whether the manager answers polls.
func (t *tunneller) setPolling(polling bool) {
	if t.polling.Swap(polling) != polling {
		t.wake.Raise()
	}
}

func (t *tunneller) isWanted() bool { return t.store.Plan().Desired.Tunnel }

// run keeps tunnels until ctx ends.
func (t *tunneller) run(ctx context.Context) error {
	if t.dial == nil {
		return nil
	}
	delays := connection.NewDelays(t.random)
	spread := &retry.Backoff{Rand: t.random}
	// failure is the last error that was logged.
	failure := ""
	// Polling may have begun before this runs: the first tunnel, too, waits for its share of the spread.
	pause := spread.Within(tunnelSpread)
	for ctx.Err() == nil {
		if !t.isWanted() || !t.polling.Load() {
			pause = spread.Within(tunnelSpread)
			t.wake.Wait(ctx)
			continue
		}
		if !t.pause(ctx, pause) {
			continue
		}
		began := t.clock.Now()
		opened, err := t.open(ctx)
		took := t.clock.Now().Sub(began)
		switch {
		case ctx.Err() != nil || err == nil:
			pause = spread.Within(tunnelSpread)
			continue
		case opened && took >= minTunnelTime:
			delays.Reset()
			pause = spread.Within(tunnelSpread)
		default:
			pause = delays.AfterError(err, took)
		}
		level := slog.LevelWarn
		if err.Error() == failure && !opened {
			level = slog.LevelDebug
		}
		failure = err.Error()
		t.log.Log(ctx, level, "No tunnel; will retry", "error", err)
	}
	return nil
}

// pause returns false if it ended early, because no tunnel is to be opened.
func (t *tunneller) pause(ctx context.Context, d time.Duration) bool {
	isOver := func() bool { return !t.isWanted() || !t.polling.Load() }
	return t.wake.RunUntil(ctx, isOver, func(ctx context.Context) { _ = t.clock.Wait(ctx, d) })
}

// open opens a tunnel and serves it to its end. It returns nil if the plan no longer
// wants it.
func (t *tunneller) open(ctx context.Context) (opened bool, err error) {
	isOver := func() bool { return !t.isWanted() }
	done := t.wake.RunUntil(ctx, isOver, func(ctx context.Context) {
		var conn net.Conn
		if conn, err = t.manager.Client().Tunnel(ctx, t.bootID); err != nil {
			return
		}
		opened = true
		t.log.Info("Opened the tunnel")
		err = tunnel.Serve(ctx, conn, t.dial)
	})
	if !done {
		t.log.Info("Closed the tunnel, which the plan no longer wants")
		return opened, nil
	}
	return opened, err
}

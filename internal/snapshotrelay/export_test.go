package snapshotrelay

import (
	"context"
	"net"
	"time"
)

// SetIdle changes how long neither side may send anything.
func (r *Relay) SetIdle(d time.Duration) { r.idle = d }

// SetSilent makes a storage not answer: calling is called with each connection to it that is begun.
func (r *Relay) SetSilent(address string, calling func()) {
	dial := r.dial
	r.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to != address {
			return dial(ctx, network, to)
		}
		calling()
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

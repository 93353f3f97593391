// Package place has the two ends of measured connections: both on the loopback, or each in a network namespace of its
// own, with a slow link between them.
package place

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// dialTimeout bounds a dial.
const dialTimeout = 30 * time.Second

// Place is one end. Its methods may be called concurrently.
type Place interface {
	// Listen listens at a port of its choice.
	Listen(ctx context.Context) (net.Listener, error)
	// Dial connects to a listener, which may be at the other end.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Loopback is a Place on the loopback.
type Loopback struct{}

// Listen implements Place.
func (Loopback) Listen(ctx context.Context) (net.Listener, error) {
	return listen(ctx, "127.0.0.1", nil)
}

// Dial implements Place.
func (Loopback) Dial(ctx context.Context, address string) (net.Conn, error) {
	return dial(ctx, address, nil)
}

// control is called for a socket before it is used.
type control = func(network, address string, connection syscall.RawConn) error

func listen(ctx context.Context, ip string, socket control) (net.Listener, error) {
	listener, err := (&net.ListenConfig{Control: socket}).Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return listener, nil
}

func dial(ctx context.Context, address string, socket control) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, Control: socket}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}

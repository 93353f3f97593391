// Package tcp makes the connections between agents and the manager. Their kernels
// find out whether the other end is still there, which costs neither program
// anything.
package tcp

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long the other end may say nothing, once it has been asked or sent
// something, before a connection is dead. The kernel tries to deliver what was sent
// for as long, also after the connection was closed or the process died.
const Patience = time.Minute

// Keep-alive probes (RFC 9293, section 3.8.4): the first after idle, and then until
// Patience is over. They keep entries of NAT alive too.
const (
	idle     = 45 * time.Second
	interval = 5 * time.Second
	probes   = 3
)

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: probes}
}

// Listen listens at an address, host:port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive(), Control: bound}
	return config.Listen(ctx, "tcp", address) //nolint:wrapcheck // says what and where
}

// Dialer connects within a time.
func Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive(), Control: bound}
}

// bound has the kernel give up what it could not deliver in Patience:
// TCP_USER_TIMEOUT, RFC 5482. Accepted connections have it from their listener.
func bound(_, _ string, connection syscall.RawConn) error {
	var failure error
	err := connection.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Patience.Milliseconds()))
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("bounding the time in which data is sent: %w", err)
	}
	return nil
}

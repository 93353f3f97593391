// Package tcp makes the connections between agents and the manager. The kernels of
// both detect dead connections, which costs the programs nothing.
package tcp

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DeadAfter is how long the peer may leave data or probes unacknowledged before the
// kernel closes the connection. The kernel retransmits for as long, also after the
// program has closed the connection or ended.
const DeadAfter = time.Minute

// Keep-alive probes (RFC 9293, section 3.8.4) start after idle and end after
// DeadAfter. They also keep NAT entries alive.
const (
	idle     = 45 * time.Second
	interval = 5 * time.Second
	probes   = 3
)

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: probes}
}

// Listen listens at an address, host:port, for connections with these limits.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive(), Control: setUserTimeout}
	return config.Listen(ctx, "tcp", address) // says what and where
}

// Dialer returns a dialer with a connect timeout, for connections with these limits.
func Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive(), Control: setUserTimeout}
}

// setUserTimeout sets TCP_USER_TIMEOUT (RFC 5482) to DeadAfter. Accepted connections
// inherit it from their listener.
func setUserTimeout(_, _ string, connection syscall.RawConn) error {
	var failure error
	err := connection.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(DeadAfter.Milliseconds()))
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("bounding the time in which data is sent: %w", err)
	}
	return nil
}

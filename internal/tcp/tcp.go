// Package tcp makes the connections between agents and the manager, and between hosts of
// a cluster. The kernels of both ends detect dead connections, which costs the programs
// nothing.
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

// limits say how soon the kernel finds a silent peer.
type limits struct {
	// Keep-alive probes (RFC 9293, section 3.8.4) start after idle, and the connection ends
	// after the last of them.
	idle, interval time.Duration
	probes         int
	// deadAfter is how long data may stay unacknowledged.
	deadAfter time.Duration
}

// remote is for connections between agents and the manager. Its probes also keep NAT
// entries alive.
func remote() limits { return limits{45 * time.Second, 5 * time.Second, 3, DeadAfter} }

// site is for connections between the hosts of a cluster.
func site() limits { return limits{4 * time.Second, 2 * time.Second, 3, 10 * time.Second} }

// Listen listens at an address, host:port, for connections that end after DeadAfter.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l := remote()
	config := net.ListenConfig{KeepAliveConfig: l.keepAlive(), Control: l.setUserTimeout}
	return config.Listen(ctx, "tcp", address) // says what and where
}

// Dialer returns a dialer with a connect timeout, for connections that end after DeadAfter.
func Dialer(timeout time.Duration) *net.Dialer { return remote().dialer(timeout) }

// SiteDialer returns a dialer with a connect timeout, for connections within a site: they
// end ten seconds after the peer has fallen silent.
func SiteDialer(timeout time.Duration) *net.Dialer { return site().dialer(timeout) }

func (l limits) dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAliveConfig: l.keepAlive(), Control: l.setUserTimeout}
}

func (l limits) keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: l.idle, Interval: l.interval, Count: l.probes}
}

// setUserTimeout sets TCP_USER_TIMEOUT (RFC 5482) to deadAfter. Accepted connections
// inherit it from their listener.
func (l limits) setUserTimeout(_, _ string, connection syscall.RawConn) error {
	var failure error
	err := connection.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.deadAfter.Milliseconds()))
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return fmt.Errorf("bounding the time in which data is sent: %w", err)
	}
	return nil
}

package forwarder

import (
	"context"
	"fmt"
	"net"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forward"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// agentLoopback is the address from which the agent connects for the tunnel. The kernel gives
// it to no program that does not ask for it.
const agentLoopback = "127.0.0.2"

// Dial connects to an API server through the process. The process accepts every connection,
// so Dial waits until it says that an API server has accepted this one.
func (m *Manager) Dial(ctx context.Context, config Config) (net.Conn, error) {
	dialer := tcp.SiteDialer(dialTimeout)
	dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(agentLoopback)}
	conn, err := dialer.DialContext(ctx, "tcp4", config.Address())
	if err != nil {
		return nil, fmt.Errorf("connecting to the endpoint's forwarder: %w", err)
	}
	if err := forward.AwaitAccepted(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("waiting until an API server of the cluster accepts the connection: %w", err)
	}
	return conn, nil
}

// isAgent reports whether a connection is one of Dial.
func isAgent(client net.Conn) bool {
	address, ok := client.RemoteAddr().(*net.TCPAddr)
	return ok && address.IP.String() == agentLoopback
}

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// alertTimeout bounds the TLS alert at the end of a tunnel's connection.
const alertTimeout = 250 * time.Millisecond

// Tunnel opens the host's tunnel over a connection of its own, and returns that after the
// upgrade. boot is the host's boot ID. The caller owns the connection. It ends when this
// client hands over to another one, and with Reconnect.
func (c *Client) Tunnel(ctx context.Context, boot string) (net.Conn, error) {
	var conn net.Conn
	err := c.call(ctx, call{
		name: "opening the tunnel", method: http.MethodGet, path: protocol.PathTunnel, query: url.Values{"boot": {boot}},
		header:  http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol.TunnelProtocol}},
		timeout: CallTimeout, accept: []int{http.StatusSwitchingProtocols},
		upgraded: func(upgraded net.Conn) { conn = upgraded },
	}, nil)
	return conn, err
}

// upgrade makes a request over a connection of its own. If the server switches to the
// protocol, it hands over the connection, and the response has no body.
func (c *Client) upgrade(request *http.Request, upgraded func(net.Conn)) (*http.Response, error) {
	var used net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { used = info.Conn }}
	response, err := c.upgrades.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		return response, err
	}
	body, ok := response.Body.(io.ReadWriteCloser)
	if protocol := response.Header.Get("Upgrade"); !ok || protocol != request.Header.Get("Upgrade") {
		return nil, errors.Join(fmt.Errorf("the server switches to %q", protocol), response.Body.Close())
	}
	response.Body = http.NoBody
	conn := &upgradedConn{Conn: used, body: body, client: c}
	c.mu.Lock()
	c.upgradedConns[conn] = struct{}{}
	c.mu.Unlock()
	upgraded(conn)
	return response, nil
}

// closeUpgraded closes the connections that were upgraded.
func (c *Client) closeUpgraded() {
	c.mu.Lock()
	var open []*upgradedConn
	for conn := range c.upgradedConns {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// upgradedConn is a connection after an upgrade.
type upgradedConn struct {
	net.Conn

	// body has what was read together with the answer, and then what the connection has.
	body   io.ReadWriteCloser
	client *Client
}

func (c *upgradedConn) Read(p []byte) (int, error) { return c.body.Read(p) }

// Close does not wait for a manager that takes no more data: TLS sends a last record.
func (c *upgradedConn) Close() error {
	c.client.mu.Lock()
	delete(c.client.upgradedConns, c)
	c.client.mu.Unlock()
	if encrypted, ok := c.Conn.(*tls.Conn); ok {
		timer := time.AfterFunc(alertTimeout, func() { _ = encrypted.NetConn().Close() })
		defer timer.Stop()
	}
	return c.Conn.Close()
}

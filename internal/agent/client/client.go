package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// CallTimeout bounds every call but Plan, AgentBinary and SendLog.
const CallTimeout = 30 * time.Second

// Limits of a call.
const (
	// connectTimeout is short because the kernel repeats SYN packets ever more rarely. A
	// new attempt reaches a network that has returned sooner.
	connectTimeout   = 4 * time.Second
	handshakeTimeout = 10 * time.Second
	// quietTime is how long an abandoned request may still reach a server.
	quietTime = 2 * tcp.DeadAfter
	pollSlack = 15 * time.Second
	// idleTimeout ends connections without a request.
	idleTimeout = 2 * time.Minute
	// pingAfter is longer than the server's ping interval, so that only the server pings.
	pingAfter        = 200 * time.Second
	pingTimeout      = 15 * time.Second
	maxResponseBytes = 1 << 20
	// noHeaderTable turns the table off: 0 would mean the default size.
	noHeaderTable  = 1
	maxHeaderBytes = 32 << 10
)

// Options are what a Client is made from.
type Options struct {
	// Servers are server URLs, in the order of preference.
	Servers []string
	// TrustBundle has, as PEM, the only CA certificates that are trusted.
	TrustBundle string
	// Certificate carries the host's key.
	Certificate tls.Certificate
	// Built is a time that has certainly passed.
	Built time.Time
	// ServerTime is the latest time that an authenticated server reported, in this run
	// or an earlier one.
	ServerTime time.Time
	// Agreed is what Client.Agreed returned last.
	Agreed time.Time
	// Now reads the host's clock; nil means time.Now.
	Now func() time.Time
	// UserAgent contains the agent's version.
	UserAgent string
	// Home returns the namespace and name that the host was last enrolled as, both blank
	// before; nil means blank.
	Home func() (namespace, name string)
	// Dial connects; nil means the system's dialler.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client calls the manager. It is safe for concurrent use.
type Client struct {
	servers   []*url.URL
	userAgent string
	home      func() (namespace, name string)
	clock     *clockEstimate
	barrier   callBarrier
	newHTTP   func() *http.Client
	// upgrades is for requests that take over their connection.
	upgrades *http.Transport

	mu      sync.Mutex
	http    *http.Client
	current int
	// polledOver is the connection of the last poll that was answered, nil before the first.
	polledOver    net.Conn
	upgradedConns map[*upgradedConn]struct{}
}

// New returns a Client, which connects to nothing yet.
func New(o Options) (*Client, error) {
	if len(o.Servers) == 0 {
		return nil, errors.New("no server is configured")
	}
	c := &Client{
		userAgent: o.UserAgent, home: o.Home, upgradedConns: map[*upgradedConn]struct{}{},
		clock: &clockEstimate{now: o.Now, built: o.Built, serverTime: o.ServerTime, agreed: o.Agreed},
	}
	if o.Now == nil {
		c.clock.now = time.Now
	}
	// An earlier process may have ended during a request.
	c.barrier.abandonedAt = c.clock.now()
	for _, server := range o.Servers {
		u, err := ParseServer(server)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, u)
	}
	roots, err := ParseTrustBundle(o.TrustBundle)
	if err != nil {
		return nil, err
	}
	tlsConfig := c.clock.tlsConfig(roots, o.Certificate)
	c.newHTTP = func() *http.Client {
		return &http.Client{
			Transport: o.transport(tlsConfig),
			// A redirect could send the host's reports to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	c.http, c.upgrades = c.newHTTP(), o.upgradeTransport(tlsConfig)
	return c, nil
}

// Close closes idle connections and the tunnel's.
func (c *Client) Close() {
	c.httpClient().CloseIdleConnections()
	c.closeUpgraded()
}

// Reconnect makes calls that begin from now on use a new connection. Calls under way
// continue; a tunnel ends.
func (c *Client) Reconnect() {
	c.mu.Lock()
	former := c.http
	c.http, c.polledOver = c.newHTTP(), nil
	c.mu.Unlock()
	former.CloseIdleConnections()
	c.closeUpgraded()
}

func (c *Client) httpClient() *http.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.http
}

// Now estimates the time from the host's clock and the servers' time.
func (c *Client) Now() time.Time { return c.clock.time() }

// ServerNow estimates the server's time without the host's clock. Before the first answer
// it is the host's time.
func (c *Client) ServerNow() time.Time {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	now := c.clock.now()
	if c.clock.heardAt.IsZero() {
		return now
	}
	return c.clock.servers(now)
}

// ServerTime is the latest time that a server reported, and the host's time then. Both
// are zero before the first answer. It goes back only if a server's clock was ahead.
func (c *Client) ServerTime() (server, local time.Time) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	if c.clock.heardAt.IsZero() {
		return time.Time{}, time.Time{}
	}
	return c.clock.serverTime, c.clock.heardAt
}

// Agreed is the latest time that had passed by both the host's clock and a server's, in
// this run or an earlier one.
func (c *Client) Agreed() time.Time {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.agreed
}

// Enrol enrols the host. The token may be blank if the manager enrols hosts without one.
func (c *Client) Enrol(ctx context.Context, token string, request protocol.EnrolRequest) (protocol.EnrolResponse, error) {
	var response protocol.EnrolResponse
	err := c.call(ctx, call{
		name: "enrolling", method: http.MethodPost, path: protocol.PathEnrol, token: token, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted},
	}, func(r *http.Response) error {
		if err := decode(r, &response); err != nil {
			return err
		}
		c.clock.recordServerTime(response.ServerTime, r)
		return nil
	})
	return response, err
}

// Bootstrap fetches the bootstrap data of an operation, and its format.
func (c *Client) Bootstrap(ctx context.Context, operation string) (data []byte, format string, err error) {
	err = c.call(ctx, call{
		name: "fetching the bootstrap data", method: http.MethodGet, path: protocol.PathBootstrap,
		query: url.Values{"operation": {operation}}, timeout: CallTimeout, accept: []int{http.StatusOK},
	}, func(r *http.Response) error {
		var err error
		data, err = readAll(r, protocol.MaxBootstrapBytes)
		format = r.Header.Get(protocol.HeaderBootstrapFormat)
		return err
	})
	return data, format, err
}

// Report sends facts and results. They are durable at the manager if it returns nil.
func (c *Client) Report(ctx context.Context, report protocol.Report) error {
	return c.call(ctx, call{
		name: "reporting", method: http.MethodPost, path: protocol.PathReport, body: report,
		timeout: CallTimeout, accept: []int{http.StatusOK, http.StatusNoContent},
	}, nil)
}

// SendLog answers a request for a log. It is durable at the manager if SendLog returns nil.
func (c *Client) SendLog(ctx context.Context, request string, log protocol.HostLog) error {
	return c.call(ctx, call{
		name: "sending a log", method: http.MethodPost, path: protocol.PathLog, query: url.Values{"request": {request}}, body: log,
		limit: protocol.MaxLogRequestBytes, timeout: protocol.LogTimeout, accept: []int{http.StatusNoContent},
	}, nil)
}

// Rotate replaces the host's key.
func (c *Client) Rotate(ctx context.Context, request protocol.RotateRequest) error {
	return c.call(ctx, call{
		name: "rotating the key", method: http.MethodPost, path: protocol.PathRotate, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK, http.StatusNoContent},
	}, nil)
}

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// CallTimeout bounds every call but Plan and AgentBinary.
const CallTimeout = 30 * time.Second

// Limits of a call.
const (
	// connectTimeout is short, because a packet that asks for a connection is
	// repeated ever more rarely: a new attempt finds a network that came back
	// sooner.
	connectTimeout   = 4 * time.Second
	handshakeTimeout = 10 * time.Second
	// settleTime is how long a request that was given up may be on its way.
	settleTime = 2 * tcp.Patience
	pollSlack  = 15 * time.Second
	// idleTimeout ends connections without a request.
	idleTimeout = 2 * time.Minute
	// pingAfter is longer than a server waits before it asks: each hears from the other
	// by one exchange.
	pingAfter        = 200 * time.Second
	pingTimeout      = 15 * time.Second
	maxResponseBytes = 1 << 20
	// noHeaderTable is the smallest size that means itself: nothing fits in.
	noHeaderTable  = 1
	maxHeaderBytes = 32 << 10
)

// Options say where the manager is and who the host is.
type Options struct {
	// Servers are base URLs, in the order of preference.
	Servers []string
	// TrustBundle is PEM: the only roots that a server may chain to.
	TrustBundle string
	// Certificate carries the host's key.
	Certificate tls.Certificate
	// Built is a time that has certainly passed.
	Built time.Time
	// ServerTime is the latest time that an authenticated server told, in this
	// run or an earlier one.
	ServerTime time.Time
	// Agreed is what Client.Agreed returned last.
	Agreed time.Time
	// Now is the host's clock; nil means time.Now.
	Now func() time.Time
	// UserAgent names the agent's version.
	UserAgent string
	// Dial connects; nil means the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client calls the manager. It is safe for concurrent use.
type Client struct {
	http      *http.Client
	transport *http.Transport
	servers   []*url.URL
	userAgent string
	clock     *reckoning
	gate      gate

	mu      sync.Mutex
	current int
}

// New checks the options; it connects to nothing.
func New(o Options) (*Client, error) {
	if len(o.Servers) == 0 {
		return nil, errors.New("no server is configured")
	}
	c := &Client{userAgent: o.UserAgent, clock: &reckoning{now: o.Now, built: o.Built, told: o.ServerTime, agreed: o.Agreed}}
	if o.Now == nil {
		c.clock.now = time.Now
	}
	// An earlier process may have been ended in the middle of a request.
	c.gate.unanswered = c.clock.now()
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
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	c.transport = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            o.dial(),
		TLSClientConfig:        c.clock.tlsConfig(roots, o.Certificate),
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
			// Each end would remember headers for compression: some KiB for each of the
			// manager's hosts, for a few requests an hour.
			MaxEncoderHeaderTableSize: noHeaderTable,
		},
		// A new server on a kept connection would never be noticed otherwise.
		IdleConnTimeout: idleTimeout,
	}
	c.http = &http.Client{
		Transport: c.transport,
		// A redirect would take the host's reports elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func (o Options) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial == nil {
		return tcp.Dialer(connectTimeout).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return o.Dial(ctx, network, address)
	}
}

// Close drops the connections that nobody uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Now is the time as far as the client knows.
func (c *Client) Now() time.Time { return c.clock.time() }

// ServerNow is the server's time now, whatever the host's clock says; before
// the first answer it is the host's.
func (c *Client) ServerNow() time.Time {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	now := c.clock.now()
	if c.clock.heard.IsZero() {
		return now
	}
	return c.clock.servers(now)
}

// ServerTime is the latest time that a server told, and what the host's clock
// said then. Both are zero before the first answer. It becomes earlier only where
// a server turned out to have been ahead.
func (c *Client) ServerTime() (server, local time.Time) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	if c.clock.heard.IsZero() {
		return time.Time{}, time.Time{}
	}
	return c.clock.told, c.clock.heard
}

// Agreed is the latest time that had passed by the host's clock and by a server's
// alike, in this run or an earlier one.
func (c *Client) Agreed() time.Time {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	return c.clock.agreed
}

// Enrol asks for a place in the fleet. The token may be blank where the
// manager lets hosts in without one.
func (c *Client) Enrol(ctx context.Context, token string, request protocol.EnrolRequest) (protocol.EnrolResponse, error) {
	var response protocol.EnrolResponse
	err := c.call(ctx, call{
		name: "enrolling", method: http.MethodPost, path: protocol.PathEnrol, token: token, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted},
	}, func(r *http.Response) error {
		if err := decode(r, &response); err != nil {
			return err
		}
		c.clock.sawServerTime(response.ServerTime, r)
		return nil
	})
	return response, err
}

// Plan waits for a plan whose revision is not the given one. boot names the
// host's boot. It returns nil when the server had no other plan in, at most,
// protocol.PollTimeout.
func (c *Client) Plan(ctx context.Context, after, boot string) (*protocol.Plan, error) {
	var plan *protocol.Plan
	err := c.call(ctx, call{
		name: "fetching the plan", method: http.MethodGet, path: protocol.PathPlan, query: url.Values{"after": {after}, "boot": {boot}},
		timeout: protocol.PollTimeout + pollSlack, accept: []int{http.StatusOK, http.StatusNoContent},
	}, func(r *http.Response) error {
		if r.StatusCode == http.StatusNoContent {
			return nil
		}
		plan = &protocol.Plan{}
		if err := decode(r, plan); err != nil {
			return err
		}
		c.clock.sawServerTime(plan.ServerTime, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return plan, nil
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

// Report records facts; they are durable at the manager when it returns nil.
func (c *Client) Report(ctx context.Context, report protocol.Report) error {
	return c.call(ctx, call{
		name: "reporting", method: http.MethodPost, path: protocol.PathReport, body: report,
		timeout: CallTimeout, accept: []int{http.StatusOK, http.StatusNoContent},
	}, nil)
}

// Rotate replaces the host's key.
func (c *Client) Rotate(ctx context.Context, request protocol.RotateRequest) error {
	return c.call(ctx, call{
		name: "rotating the key", method: http.MethodPost, path: protocol.PathRotate, body: request,
		timeout: CallTimeout, accept: []int{http.StatusOK, http.StatusNoContent},
	}, nil)
}

type call struct {
	// name is a gerund, for errors.
	name, method, path, token string
	query                     url.Values
	header                    http.Header
	body                      any
	timeout                   time.Duration
	accept                    []int
}

// call makes a call, unless this client has handed over to another.
func (c *Client) call(ctx context.Context, what call, read func(*http.Response) error) error {
	for {
		next, err := c.gate.enter(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what.name, err)
		}
		if next == nil {
			err = c.try(ctx, what, read)
			c.gate.leave()
			return err
		}
		c = next
	}
}

// try asks the servers in turn, beginning with the one that answered last.
func (c *Client) try(ctx context.Context, what call, read func(*http.Response) error) error {
	var body []byte
	if what.body != nil {
		var err error
		if body, err = json.Marshal(what.body); err != nil {
			return fmt.Errorf("%s: encoding the request: %w", what.name, err)
		}
		if len(body) > protocol.MaxRequestBytes {
			return fmt.Errorf("%s: the request has %d bytes, more than the %d that a server takes",
				what.name, len(body), protocol.MaxRequestBytes)
		}
	}
	c.mu.Lock()
	first := c.current
	c.mu.Unlock()
	var failures []error
	for i := range c.servers {
		at := (first + i) % len(c.servers)
		err := c.ask(ctx, c.servers[at], what, body, read)
		if c.clock.doubt(err) {
			err = c.ask(ctx, c.servers[at], what, body, read)
			c.clock.settle()
		}
		if err == nil {
			c.mu.Lock()
			c.current = at
			c.mu.Unlock()
			return nil
		}
		failures = append(failures, err)
		var refusal *ProblemError
		if ctx.Err() != nil || errors.As(err, &refusal) && !refusal.elsewhere() {
			break
		}
	}
	return fmt.Errorf("%s: %w", what.name, joined(failures))
}

func (c *Client) ask(ctx context.Context, server *url.URL, what call, body []byte, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, what.timeout)
	defer cancel()
	target := server.JoinPath(what.path)
	target.RawQuery = what.query.Encode()
	request, err := http.NewRequestWithContext(ctx, what.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	maps.Copy(request.Header, what.header)
	request.Header.Set("User-Agent", c.userAgent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if what.token != "" {
		request.Header.Set("Authorization", "Bearer "+what.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if !isUnreachable(err) {
			c.gate.noAnswer(c.clock.now())
		}
		return explain(server, err)
	}
	defer func() { _ = response.Body.Close() }()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		c.clock.sawServerTime(date, response)
	}
	for _, status := range what.accept {
		if response.StatusCode == status {
			if read == nil {
				return nil
			}
			return read(response)
		}
	}
	return readProblem(server.Host, response, c.clock.now())
}

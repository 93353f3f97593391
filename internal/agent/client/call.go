package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

type call struct {
	// name is a gerund, for errors.
	name, method, path, token string
	query                     url.Values
	header                    http.Header
	body                      any
	timeout                   time.Duration
	// limit bounds the body in bytes; 0 means protocol.MaxRequestBytes.
	limit  int
	accept []int
	// isPoll ties the call to its connection; see pollTie.
	isPoll bool
	// upgraded, if set, takes over the connection; see upgrade.
	upgraded func(net.Conn)
}

// call makes a call with this client or the one that it has handed over to.
func (c *Client) call(ctx context.Context, request call, read func(*http.Response) error) error {
	for {
		next, err := c.barrier.enter(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", request.name, err)
		}
		if next == nil {
			err = c.try(ctx, request, read)
			c.barrier.leave()
			return err
		}
		c = next
	}
}

// try calls the servers one after the other, beginning with the one that answered last.
func (c *Client) try(ctx context.Context, request call, read func(*http.Response) error) error {
	var body []byte
	if request.body != nil {
		var err error
		if body, err = json.Marshal(request.body); err != nil {
			return fmt.Errorf("%s: encoding the request: %w", request.name, err)
		}
		if limit := cmp.Or(request.limit, protocol.MaxRequestBytes); len(body) > limit {
			return fmt.Errorf("%s: the request has %d bytes, more than the %d that a server takes", request.name, len(body), limit)
		}
	}
	c.mu.Lock()
	first := c.current
	c.mu.Unlock()
	var failures []error
	for i := range c.servers {
		at := (first + i) % len(c.servers)
		err := c.ask(ctx, c.servers[at], request, body, read)
		if c.clock.distrustClock(err) {
			err = c.ask(ctx, c.servers[at], request, body, read)
			c.clock.revertUnconfirmed()
		}
		isReplaced := errors.Is(err, ErrConnectionReplaced)
		if err == nil || isReplaced {
			c.mu.Lock()
			c.current = at
			c.mu.Unlock()
		}
		if err == nil {
			return nil
		}
		failures = append(failures, err)
		var refusal *ProblemError
		if ctx.Err() != nil || isReplaced || errors.As(err, &refusal) && !refusal.isWorthRetryingElsewhere() {
			break
		}
	}
	return fmt.Errorf("%s: %w", request.name, joined(failures))
}

func (c *Client) send(request *http.Request, call call) (*http.Response, error) {
	if call.upgraded != nil {
		return c.upgrade(request, call.upgraded)
	}
	return c.httpClient().Do(request)
}

func (c *Client) ask(ctx context.Context, server *url.URL, call call, body []byte, read func(*http.Response) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, call.timeout)
	defer cancel()
	if call.isPoll {
		var tie *pollTie
		if ctx, tie = c.tiePoll(ctx, call); tie == nil {
			return ErrConnectionReplaced
		}
		defer func() { err = tie.end(c, err) }()
	}
	target := server.JoinPath(call.path)
	target.RawQuery = call.query.Encode()
	request, err := http.NewRequestWithContext(ctx, call.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	maps.Copy(request.Header, call.header)
	request.Header.Set("User-Agent", c.userAgent)
	if c.home != nil {
		if namespace, name := c.home(); name != "" {
			request.Header.Set(protocol.HeaderHome, namespace+"/"+name)
		}
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if call.token != "" {
		request.Header.Set("Authorization", "Bearer "+call.token)
	}
	response, err := c.send(request, call)
	if err != nil {
		if !isUnreachable(err) {
			c.barrier.recordAbandoned(c.clock.now())
		}
		return withAdvice(server, err)
	}
	defer func() { _ = response.Body.Close() }()
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		c.clock.recordServerTime(date, response)
	}
	for _, status := range call.accept {
		if response.StatusCode == status {
			if read == nil {
				return nil
			}
			return read(response)
		}
	}
	return readProblem(server.Host, response, c.clock.now())
}

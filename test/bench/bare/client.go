package bare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Client connects to a Server. It is safe for concurrent use.
type Client struct {
	// URL is the server's.
	URL string
	// TLS has what the server is trusted by and the client's certificate.
	TLS *tls.Config
}

// Connection is a connection of its own to a Server, with a request that waits.
type Connection struct {
	transport *http.Transport
	cancel    context.CancelFunc
	waiting   sync.WaitGroup
	mu        sync.Mutex
	err       error
}

// Connect makes a connection, posts something and returns when that has been answered; a request waits from then on.
// The end of ctx ends no connection that was made.
func (c Client) Connect(ctx context.Context) (*Connection, error) {
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	out := &Connection{transport: &http.Transport{Protocols: protocols, TLSClientConfig: c.TLS.Clone()}}
	if err := out.do(ctx, http.MethodPost, c.URL); err != nil {
		out.transport.CloseIdleConnections()
		return nil, fmt.Errorf("connecting: %w", err)
	}
	var life context.Context
	life, out.cancel = context.WithCancel(context.WithoutCancel(ctx))
	out.waiting.Go(func() {
		err := out.do(life, http.MethodGet, c.URL)
		if err == nil {
			err = errors.New("the server has answered")
		}
		out.mu.Lock()
		defer out.mu.Unlock()
		if out.err == nil && life.Err() == nil {
			out.err = fmt.Errorf("waiting: %w", err)
		}
	})
	return out, nil
}

func (c *Connection) do(ctx context.Context, method, url string) error {
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if err == nil && response.StatusCode != http.StatusNoContent {
		err = errors.New(response.Status)
	}
	return err
}

// Err says why the request does not wait any more; nil while it does.
func (c *Connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection.
func (c *Connection) Close() {
	c.cancel()
	c.waiting.Wait()
	c.transport.CloseIdleConnections()
}

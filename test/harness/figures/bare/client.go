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
	// URL is the URL of the server.
	URL string
	// TLS has the server's CA certificates and the client's certificate.
	TLS *tls.Config
}

// Connection is a separate connection to a Server with a waiting request.
type Connection struct {
	transport *http.Transport
	cancel    context.CancelFunc
	waiting   sync.WaitGroup
	mu        sync.Mutex
	err       error
}

// Connect opens a connection, sends a POST request, waits for its response, and leaves a waiting request. ctx bounds the
// call, not the life of the connection.
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

// Err returns why the waiting request has ended, or nil while it waits.
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

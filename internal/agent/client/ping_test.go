package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
)

// pipes is a network in memory.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
	// writes counts the client's writes.
	writes atomic.Int64
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return &counted{Conn: ours, writes: &p.writes}, nil
}

type counted struct {
	net.Conn

	writes *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// The server pings idle connections. The client sends its own ping only if the server's
// ping is late, which halves the packets of an idle fleet.
func TestSendsNoPingsWhileTheServerDoes(t *testing.T) {
	s, bundle := serving(t, nil)
	certificates := s.TLS.Certificates
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{conns: make(chan net.Conn, 1), ended: make(chan struct{})}
		manager := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(400 * time.Second):
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		_ = manager.Listener.Close()
		manager.Listener = network
		manager.EnableHTTP2 = true
		manager.Config.HTTP2 = &http.HTTP2Config{SendPingTimeout: 3 * time.Minute, PingTimeout: 15 * time.Second}
		manager.TLS = s.TLS.Clone()
		manager.TLS.Certificates = certificates
		manager.StartTLS()
		c := connect(t, func(o *client.Options) {
			o.Servers, o.TrustBundle, o.Dial = []string{"https://127.0.0.1:1"}, bundle, network.dial
			o.Now = func() time.Time { return s.Certificate().NotBefore.Add(time.Minute) }
		})
		polled := make(chan error, 1)
		go func() {
			_, err := c.Plan(t.Context(), "", "boot")
			polled <- err
		}()
		time.Sleep(time.Second)
		before := network.writes.Load()
		time.Sleep(320 * time.Second)
		if writes := network.writes.Load() - before; writes != 1 {
			t.Errorf("wrote %d times, want one answer to the server's ping", writes)
		}
		if err := <-polled; err != nil {
			t.Error(err)
		}
		c.Close()
		manager.Close()
	})
}

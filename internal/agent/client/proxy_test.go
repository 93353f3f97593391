package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// connectProxy is an HTTP proxy that connects by CONNECT.
type connectProxy struct {
	*httptest.Server

	// to is where all connections lead; blank: where the client wants.
	to string

	mu       sync.Mutex
	requests []string
}

func startProxy(t *testing.T, to string) *connectProxy {
	t.Helper()
	p := &connectProxy{to: to}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// seen returns method and target of the requests.
func (p *connectProxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// ServeHTTP implements http.Handler.
func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests = append(p.requests, r.Method+" "+r.Host)
	p.mu.Unlock()
	to := p.to
	if to == "" {
		to = r.Host
	}
	far, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = far.Close() }()
	w.WriteHeader(http.StatusOK)
	// What the client sends after the answer may have been read already.
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = near.Close() }()
	go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
	_, _ = io.Copy(far, buffered)
}

// Polls, reports and the tunnel go through HTTPS_PROXY, but not to what NO_PROXY names. Go
// reads the environment once per process, so the test starts another one.
func TestProxyOfTheEnvironment(t *testing.T) {
	const environment = "proxy.example.com:3128"
	if os.Getenv("HTTPS_PROXY") != "http://"+environment {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		command.Env = append(os.Environ(), "HTTPS_PROXY=http://"+environment, "https_proxy=", "NO_PROXY=direct.example.com", "no_proxy=")
		if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
			t.Errorf("%v: %s", err, output)
		}
		return
	}
	sessions := make(tunnels, 1)
	s, bundle := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == protocol.PathTunnel {
			sessions.serve(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	proxy := startProxy(t, s.Listener.Addr().String())
	var direct []string
	c := connect(t, func(o *client.Options) {
		o.Servers, o.TrustBundle = []string{"https://manager.example.com"}, bundle
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == environment {
				address = proxy.Listener.Addr().String()
			} else {
				direct = append(direct, address)
				address = s.Listener.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	if _, err := c.Plan(t.Context(), "", "boot 1"); err != nil {
		t.Fatal(err)
	}
	if err := c.Report(t.Context(), protocol.Report{}); err != nil {
		t.Fatal(err)
	}
	conn, err := c.Tunnel(t.Context(), "boot 1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- tunnel.Serve(ctx, conn, echo) }()
	session := <-sessions
	if session == nil || !carries(t, session) {
		t.Error("the tunnel carries nothing")
	}
	want := []string{"CONNECT manager.example.com:443", "CONNECT manager.example.com:443"}
	if seen := proxy.seen(); !slices.Equal(seen, want) || len(direct) > 0 {
		t.Errorf("the proxy saw %q, and %q was connected to without it", seen, direct)
	}
	cancel()
	if err := <-served; err == nil {
		t.Error("the tunnel ended without an error")
	}
	awaitEnd(t, session)

	other := connect(t, func(o *client.Options) {
		o.Servers, o.TrustBundle = []string{"https://direct.example.com"}, bundle
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			direct = append(direct, address)
			return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
		}
	})
	if _, err := other.Plan(t.Context(), "", "boot 1"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(direct, []string{"direct.example.com:443"}) {
		t.Errorf("connected to %q", direct)
	}
}

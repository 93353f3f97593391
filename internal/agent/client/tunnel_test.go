package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// tunnels is a manager's side: each session that an agent has opened is sent to it.
type tunnels chan *tunnel.Session

func (s tunnels) serve(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.URL.Path != protocol.PathTunnel || r.URL.Query().Get("boot") != "boot 1" ||
		r.Header.Get("Upgrade") != protocol.TunnelProtocol || r.Header.Get("Connection") != "Upgrade" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	// The answer and the first bytes of HTTP/2 arrive together.
	first := &firstWrite{Conn: conn, before: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol.TunnelProtocol + "\r\n\r\n"}
	session, err := tunnel.NewSession(context.WithoutCancel(r.Context()), first)
	if err != nil {
		close(s)
		return
	}
	s <- session
}

// firstWrite puts something before the first write.
type firstWrite struct {
	net.Conn

	before string
}

func (f *firstWrite) Write(p []byte) (int, error) {
	if f.before == "" {
		return f.Conn.Write(p)
	}
	before := f.before
	f.before = ""
	n, err := f.Conn.Write(append([]byte(before), p...))
	return max(n-len(before), 0), err
}

// echo is a target that sends back what it gets.
func echo(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer func() { _ = far.Close() }()
		_, _ = io.Copy(far, far)
	}()
	return near, nil
}

// carries reports whether a session carries data to the agent and back.
func carries(t *testing.T, session *tunnel.Session) bool {
	t.Helper()
	conn, err := session.Dial(t.Context(), protocol.TargetAPIServer)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line == "hello\n"
}

// awaitEnd waits until the manager has noticed the end of a session.
func awaitEnd(t *testing.T, session *tunnel.Session) {
	t.Helper()
	select {
	case <-session.Done():
	case <-time.After(time.Minute):
		t.Error("the tunnel has not ended")
	}
}

func TestTunnel(t *testing.T) {
	for name, end := range map[string]func(c, next *client.Client, cancel context.CancelFunc) error{
		"its caller":  func(_, _ *client.Client, cancel context.CancelFunc) error { cancel(); return nil },
		"a reconnect": func(c, _ *client.Client, _ context.CancelFunc) error { c.Reconnect(); return nil },
		"a new key": func(c, next *client.Client, _ context.CancelFunc) error {
			return c.HandOver(context.Background(), next, func() error { return nil })
		},
		"new servers": func(c, next *client.Client, _ context.CancelFunc) error { c.Follow(next); return nil },
	} {
		t.Run("ended by "+name, func(t *testing.T) {
			sessions := make(tunnels, 1)
			s, bundle := serving(t, sessions.serve)
			now := time.Now()
			c := connect(t, func(o *client.Options) {
				o.Servers, o.TrustBundle, o.Now = []string{s.URL}, bundle, func() time.Time { return now }
			})
			next := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
			conn, err := c.Tunnel(t.Context(), "boot 1")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			served := make(chan error, 1)
			go func() { served <- tunnel.Serve(ctx, conn, echo) }()
			session := <-sessions
			if session == nil || !carries(t, session) {
				t.Fatal("the tunnel carries nothing")
			}
			now = now.Add(time.Hour) // no request of the agent's start is under way
			if err := end(c, next, cancel); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, session)
			if err := <-served; err == nil {
				t.Error("no reason")
			}
		})
	}
}

func TestTunnelIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   func(error) bool
	}{
		"by another boot": {reply(http.StatusConflict, "application/problem+json", `{"type":"about:blank","title":"Another boot"}`), func(err error) bool {
			return strings.Contains(err.Error(), "Another boot")
		}},
		"for a while": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, func(err error) bool { return client.Unavailable(err) && client.RetryAfter(err) == 7*time.Second }},
		"by a manager that switches to something else": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = conn.Close()
		}, func(err error) bool { return strings.Contains(err.Error(), "websocket") }},
		"by one that ignores the upgrade": {reply(http.StatusOK, "text/plain", "hello"), func(err error) bool {
			return strings.Contains(err.Error(), "200")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, bundle := serving(t, test.answer)
			c := connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
			conn, err := c.Tunnel(t.Context(), "boot 1")
			if err == nil || conn != nil || !test.want(err) {
				t.Errorf("got %v, %v", conn, err)
			}
		})
	}
}

// The tunnel takes the way of all requests: the next server, and the proxy of the
// environment.
func TestTunnelThroughProxy(t *testing.T) {
	sessions := make(tunnels, 1)
	s, bundle := serving(t, sessions.serve)
	proxy := startProxy(t, "")
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, func(o *client.Options) {
		o.Servers, o.TrustBundle = []string{"https://127.0.0.1:1", s.URL}, bundle
	})
	c.SetProxy(http.ProxyURL(at))
	conn, err := c.Tunnel(t.Context(), "boot 1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- tunnel.Serve(ctx, conn, echo) }()
	session := <-sessions
	if session == nil || !carries(t, session) {
		t.Error("the tunnel carries nothing")
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if seen := proxy.seen(); len(seen) != 2 || seen[1] != "CONNECT "+s.Listener.Addr().String() {
		t.Errorf("the proxy saw %q", seen)
	}
	if session != nil {
		awaitEnd(t, session)
	}
}

package agent_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// tunnel opens a session as the manager does.
func (m *manager) tunnel(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		problem(w, protocol.Problem{Status: http.StatusUpgradeRequired})
		return
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol.TunnelProtocol+"\r\n\r\n")
	if err != nil {
		_ = conn.Close()
		return
	}
	if session, err := tunnel.NewSession(context.WithoutCancel(r.Context()), conn); err == nil {
		m.set(func(m *manager) { m.tunnels = append(m.tunnels, session) })
		session.OnEnd(func(error) { m.set(func(*manager) {}) })
	}
}

// newTunnelRig returns a host whose API server echoes.
func newTunnelRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.with = func(o *agent.Options) {
		o.Tunnel = func(_ context.Context, target string) (net.Conn, error) {
			if target != protocol.TargetAPIServer {
				return nil, tunnel.ErrForbidden
			}
			near, far := net.Pipe()
			go func() {
				defer func() { _ = far.Close() }()
				_, _ = io.Copy(far, far)
			}()
			return near, nil
		}
	}
	t.Cleanup(func() {
		r.manager.mu.Lock()
		sessions := slices.Clone(r.manager.tunnels)
		r.manager.mu.Unlock()
		for _, session := range sessions {
			session.Close(nil)
		}
	})
	return r
}

// tunnelsWere is a condition: the host has opened so many tunnels, and all but the last have
// ended.
func tunnelsWere(n int) func(*manager) bool {
	return func(m *manager) bool {
		for i, session := range m.tunnels {
			if i < n-1 && session.Err() == nil {
				return false
			}
		}
		return len(m.tunnels) == n && m.tunnels[n-1].Err() == nil
	}
}

func (m *manager) lastTunnel() *tunnel.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tunnels[len(m.tunnels)-1]
}

func noTunnel(m *manager) bool {
	return !slices.ContainsFunc(m.tunnels, func(s *tunnel.Session) bool { return s.Err() == nil })
}

var tunnelled = protocol.Desired{Tunnel: true}

func TestTunnelFollowsThePlan(t *testing.T) {
	r := newTunnelRig(t)
	stop := r.start()
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "the plan was taken", taken)
	r.manager.want(nil, tunnelled)
	r.manager.await(t, "there is a tunnel", tunnelsWere(1))
	conn, err := r.manager.lastTunnel().Dial(t.Context(), protocol.TargetAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if _, err := r.manager.lastTunnel().Dial(t.Context(), "kubelet"); !errors.Is(err, tunnel.ErrForbidden) {
		t.Errorf("got %v", err)
	}
	_ = conn.Close()
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "the tunnel is closed", noTunnel)
	r.manager.want(nil, tunnelled)
	r.manager.await(t, "there is a tunnel again", tunnelsWere(2))
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A tunnel that is lost, and the tunnel of a manager that is gone, come back. An agent
// that stops ends its tunnel.
func TestTunnelComesBack(t *testing.T) {
	r := newTunnelRig(t)
	r.manager.want(nil, tunnelled)
	stop := r.start()
	r.manager.await(t, "there is a tunnel", tunnelsWere(1))
	r.manager.lastTunnel().Close(nil)
	r.manager.await(t, "there is another one", tunnelsWere(2))
	r.changeAddress(t, "192.0.2.9")
	r.manager.await(t, "there is one from the new address", tunnelsWere(3))
	if err := stop(); err != nil {
		t.Error(err)
	}
	r.manager.await(t, "the tunnel has ended", noTunnel)
}

// Refusals are obeyed: a manager says when to come back, and one that refuses is asked ever
// more rarely.
func TestTunnelIsRefused(t *testing.T) {
	r := newTunnelRig(t)
	pauses := r.clock.recordPauses()
	r.manager.retryAfter = "30"
	attempts := make(chan struct{}, 1000)
	r.manager.refuse = func(path string) *protocol.Problem {
		if path != protocol.PathTunnel {
			return nil
		}
		attempts <- struct{}{}
		return &protocol.Problem{Status: http.StatusServiceUnavailable}
	}
	r.manager.want(nil, tunnelled)
	r.start()
	var before []time.Duration
	for range 2 {
		<-attempts
		for d := range pauses {
			before = append(before, d)
			if d >= 30*time.Second {
				break
			}
		}
	}
	// Half of five seconds by the rig's random number, before the first attempt.
	if !slices.Contains(before, 2500*time.Millisecond) {
		t.Errorf("paused %v", before)
	}
	r.manager.set(func(m *manager) { m.refuse = nil })
	go func() {
		for {
			select {
			case <-pauses:
			case <-t.Context().Done():
				return
			}
		}
	}()
	r.manager.await(t, "there is a tunnel", tunnelsWere(1))
}

func TestTunnelCapability(t *testing.T) {
	for _, able := range []bool{false, true} {
		r := newRig(t)
		if able {
			r = newTunnelRig(t)
		}
		r.start()
		r.manager.await(t, "the agent says what it can", func(m *manager) bool { return len(m.enrolled) > 0 })
		r.manager.mu.Lock()
		got := slices.Contains(r.manager.enrolled[0].Hello.Capabilities, protocol.CapabilityTunnel)
		r.manager.mu.Unlock()
		if got != able {
			t.Errorf("got %v, want %v", got, able)
		}
	}
}

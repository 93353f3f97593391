package tunnels_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// silent returns a connection whose agent answers nothing.
func silent() net.Conn {
	manager, agent := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, agent) }()
	return manager
}

// opening opens a tunnel of host a and sends the outcome.
func (r *rig) opening(conn net.Conn) <-chan error {
	outcome := make(chan error, 1)
	go func() {
		_, err := r.table.Open(r.t.Context(), named("a"), holder, conn)
		outcome <- err
	}()
	synctest.Wait()
	return outcome
}

func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.table.Close()
		manager, agent := net.Pipe()
		go func() {
			_ = tunnel.Serve(context.WithoutCancel(t.Context()), agent, func(context.Context, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					_, _ = io.WriteString(far, "a")
					_ = far.Close()
				}()
				return near, nil
			})
		}()
		if err := <-r.opening(manager); err != nil {
			t.Fatal(err)
		}
		if got := r.reached("a"); got != "a" {
			t.Errorf("the dial reached %q", got)
		}
	})
}

// A set-up that hangs delays neither the next one of the host nor the end of the manager.
func TestSetupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		first := r.opening(silent())
		second := r.opening(silent())
		if err := <-first; !errors.Is(err, tunnels.ErrReplaced) {
			t.Errorf("the first ended with %v, want %v", err, tunnels.ErrReplaced)
		}
		r.table.Close()
		if err := <-second; !errors.Is(err, tunnels.ErrDraining) {
			t.Errorf("the second ended with %v, want %v", err, tunnels.ErrDraining)
		}
		if err := <-r.opening(silent()); !errors.Is(err, tunnels.ErrDraining) {
			t.Errorf("a late one ended with %v, want %v", err, tunnels.ErrDraining)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestSetupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.table.Close()
		began := time.Now()
		if err := <-r.opening(silent()); !errors.Is(err, tunnel.ErrUnresponsive) {
			t.Errorf("ended with %v, want %v", err, tunnel.ErrUnresponsive)
		}
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("waited for %s", waited)
		}
		if _, known := r.table.State(named("a")); known {
			t.Error("the host has a state")
		}
	})
}

func TestExpect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.table.Close()
		for _, want := range []bool{true, false} {
			if got := r.table.Expect(named("a")); got != want {
				t.Errorf("new is %t, want %t", got, want)
			}
		}
		if state, known := r.table.State(named("a")); !known || state.Connected || !state.Since.Equal(time.Now()) || state.Ended != nil {
			t.Errorf("the state is %+v", state)
		}
		if err := r.table.Add(named("a"), holder, r.connect("a")); err != nil {
			t.Fatal(err)
		}
		if r.table.Expect(named("a")) {
			t.Error("a host with a tunnel is expected")
		}
		if got := r.reached("a"); got != "a" {
			t.Errorf("the dial reached %q", got)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.table.Close()
		registry := prometheus.NewRegistry()
		if err := r.table.Register(registry); err != nil {
			t.Fatal(err)
		}
		_, _ = r.table.Dial(t.Context(), named("a"), apiServer)
		if err := r.table.Add(named("a"), holder, r.connect("a")); err != nil {
			t.Fatal(err)
		}
		_, _ = r.table.Dial(t.Context(), named("a"), "10.0.0.1:22")
		conn, err := r.table.Dial(t.Context(), named("a"), apiServer)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]float64{
			"elemental_tunnels_connected": 1, "elemental_tunnels_streams": 1, "elemental_tunnels_opened_total": 1, "elemental_tunnels_dials_total": 3,
		} {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var sum float64
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == name {
						sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
					}
				}
			}
			if sum != want {
				t.Errorf("%s is %v, want %v", name, sum, want)
			}
		}
		if n, err := testutil.GatherAndCount(registry, "elemental_tunnels_dials_total"); err != nil || n != 3 {
			t.Errorf("%d outcomes of dials, %v", n, err)
		}
		_ = conn.Close()
	})
}

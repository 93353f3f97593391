package tunnels_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

const apiServer = "kube-apiserver"

var holder = tunnels.Holder{KeyFingerprint: "sha256:a", Boot: "boot", ClaimID: "claim"}

// rig is a table with agents whose targets echo the agent's name.
type rig struct {
	t       *testing.T
	table   *tunnels.Table
	changes chan types.NamespacedName
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, changes: make(chan types.NamespacedName, 100)}
	r.table = tunnels.NewTable(clock.RealClock{}, func(host types.NamespacedName) { r.changes <- host })
	return r
}

func named(host string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: host}
}

// connect returns a session with an agent of a name.
func (r *rig) connect(name string) *tunnel.Session {
	r.t.Helper()
	manager, agent := net.Pipe()
	go func() {
		_ = tunnel.Serve(context.WithoutCancel(r.t.Context()), agent, func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				_, _ = io.WriteString(far, name)
				_ = far.Close()
			}()
			return near, nil
		})
	}()
	session, err := tunnel.NewSession(r.t.Context(), manager)
	if err != nil {
		r.t.Fatal(err)
	}
	return session
}

// reached returns which agent a dial reaches.
func (r *rig) reached(host string) string {
	r.t.Helper()
	conn, err := r.table.Dial(r.t.Context(), named(host), apiServer)
	if err != nil {
		r.t.Fatal(err)
	}
	name, err := io.ReadAll(conn)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		r.t.Fatal(err)
	}
	return string(name)
}

func TestDialsByHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.table.Close()
		for _, host := range []string{"a", "b"} {
			if err := r.table.Add(named(host), holder, r.connect(host)); err != nil {
				t.Fatal(err)
			}
			if got := <-r.changes; got != named(host) {
				t.Errorf("%s has changed, want %s", got, host)
			}
		}
		for _, host := range []string{"a", "b"} {
			if got := r.reached(host); got != host {
				t.Errorf("the dial to %s reached %s", host, got)
			}
		}
		if _, err := r.table.Dial(t.Context(), named("c"), apiServer); !errors.Is(err, tunnel.ErrAbsent) {
			t.Errorf("got error %v, want %v", err, tunnel.ErrAbsent)
		}
		if _, err := r.table.Dial(t.Context(), types.NamespacedName{Namespace: "other", Name: "a"}, apiServer); !errors.Is(err, tunnel.ErrAbsent) {
			t.Errorf("got error %v, want %v", err, tunnel.ErrAbsent)
		}
	})
}

func TestNewestTunnelWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.table.Close()
		first, second := r.connect("first"), r.connect("second")
		for _, session := range []*tunnel.Session{first, second} {
			if err := r.table.Add(named("a"), holder, session); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := first.Err(); !errors.Is(err, tunnels.ErrReplaced) {
			t.Errorf("the first ended with %v, want %v", err, tunnels.ErrReplaced)
		}
		if got := r.reached("a"); got != "second" {
			t.Errorf("the dial reached %s", got)
		}
		if state, ok := r.table.State(named("a")); !ok || !state.Connected {
			t.Errorf("the state is %+v", state)
		}
	})
}

func TestLostTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		session := r.connect("a")
		if _, ok := r.table.State(named("a")); ok {
			t.Error("an unknown host has a state")
		}
		if err := r.table.Add(named("a"), holder, session); err != nil {
			t.Fatal(err)
		}
		<-r.changes
		time.Sleep(time.Hour)
		lost := errors.New("connection is lost")
		session.Close(lost)
		<-r.changes
		state, ok := r.table.State(named("a"))
		if !ok || state.Connected || state.Holder != holder || !state.Since.Equal(time.Now()) || !errors.Is(state.Ended, lost) {
			t.Errorf("the state is %+v", state)
		}
		if _, err := r.table.Dial(t.Context(), named("a"), apiServer); !errors.Is(err, tunnel.ErrAbsent) {
			t.Errorf("got error %v, want %v", err, tunnel.ErrAbsent)
		}
	})
}

func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		session := r.connect("a")
		if err := r.table.Add(named("a"), holder, session); err != nil {
			t.Fatal(err)
		}
		r.table.Review(named("a"), func(tunnels.Holder) error { return nil })
		r.table.Review(named("b"), func(tunnels.Holder) error { return errors.New("is not asked") })
		if err := session.Err(); err != nil {
			t.Fatal(err)
		}
		locked := errors.New("host is locked")
		r.table.Review(named("a"), func(of tunnels.Holder) error {
			if of != holder {
				t.Errorf("asked about %v", of)
			}
			return locked
		})
		if err := session.Err(); !errors.Is(err, locked) {
			t.Errorf("the session ended with %v, want %v", err, locked)
		}
		synctest.Wait()
		if n := r.table.Streams(named("a")); n != 0 {
			t.Errorf("%d streams, want none", n)
		}
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		session := r.connect("a")
		if err := r.table.Add(named("a"), holder, session); err != nil {
			t.Fatal(err)
		}
		deleted := errors.New("host is deleted")
		r.table.Forget(named("a"), deleted)
		synctest.Wait()
		if err := session.Err(); !errors.Is(err, deleted) {
			t.Errorf("the session ended with %v, want %v", err, deleted)
		}
		if state, ok := r.table.State(named("a")); ok {
			t.Errorf("the state is %+v", state)
		}
	})
}

func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		session, late := r.connect("a"), r.connect("b")
		if err := r.table.Add(named("a"), holder, session); err != nil {
			t.Fatal(err)
		}
		r.table.Close()
		if err := session.Err(); !errors.Is(err, tunnels.ErrDraining) {
			t.Errorf("the session ended with %v, want %v", err, tunnels.ErrDraining)
		}
		if err := r.table.Add(named("b"), holder, late); !errors.Is(err, tunnels.ErrDraining) {
			t.Errorf("got error %v, want %v", err, tunnels.ErrDraining)
		}
		if err := late.Err(); !errors.Is(err, tunnels.ErrDraining) {
			t.Errorf("the late session ended with %v, want %v", err, tunnels.ErrDraining)
		}
	})
}

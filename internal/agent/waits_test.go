package agent_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// pauses runs the agent for many attempts without success and returns the pauses
// between them.
func pauses(t *testing.T, r *rig, attempts int) []time.Duration {
	t.Helper()
	waits := make(chan time.Duration)
	r.clock.waits = waits
	stop := r.start()
	var made []time.Duration
	for range attempts {
		made = append(made, <-waits)
	}
	go func() {
		for range waits {
			continue
		}
	}()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	close(waits)
	return made
}

func refusingFor(p protocol.Problem, retryAfter string) func(*rig) {
	return func(r *rig) {
		r.manager.set(func(m *manager) {
			m.refuse, m.retryAfter = func(string) *protocol.Problem { return &p }, retryAfter
		})
	}
}

func TestWaitsByWhatIsWrong(t *testing.T) {
	refusing := func(p protocol.Problem) func(*rig) { return refusingFor(p, "") }
	for name, test := range map[string]struct {
		prepare  func(*rig)
		from, to time.Duration
	}{
		"no network": {func(r *rig) { r.manager.server.Close() }, time.Second, 4 * time.Second},
		"busy":       {refusing(protocol.Problem{Status: 503}), 20 * time.Second, time.Minute},
		"busy until": {refusingFor(protocol.Problem{Status: 503}, "5"), 5 * time.Second, 10 * time.Second},
		"too many":   {refusingFor(protocol.Problem{Status: 429}, "5"), 25 * time.Second, 65 * time.Second},
		"locked":     {refusing(protocol.Problem{Status: 403, Type: protocol.ProblemLocked}), time.Minute, 5 * time.Minute},
		"revoked":    {refusing(protocol.Problem{Status: 403, Type: protocol.ProblemRevoked}), time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			test.prepare(r)
			if most := slices.Max(pauses(t, r, 12)); most < test.from || most > test.to {
				t.Errorf("waits up to %s, want %s to %s", most, test.from, test.to)
			}
		})
	}
}

// A fleet is spread evenly over the time that a busy manager asks for, at most a
// minute, from the first time on.
func TestComesBackWhenABusyManagerSays(t *testing.T) {
	for _, test := range []struct {
		after  string
		random float64
		want   time.Duration
	}{
		{"5", 0, 5 * time.Second}, {"5", 0.5, 7500 * time.Millisecond}, {"5", 0.99, 9950 * time.Millisecond},
		{"300", 0.5, 330 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s s, %g", test.after, test.random), func(t *testing.T) {
			r := newRig(t)
			refusingFor(protocol.Problem{Status: http.StatusServiceUnavailable}, test.after)(r)
			r.with = func(a *agent.Agent) { a.Rand = func() float64 { return test.random } }
			for i, wait := range pauses(t, r, 3) {
				if (wait - test.want).Abs() > time.Millisecond {
					t.Errorf("wait %d is %s, want %s", i, wait, test.want)
				}
			}
		})
	}
}

// The time from the return of the network, which here is a listener, to an
// answered poll, by the real clock.
func TestIsBackWithinSeconds(t *testing.T) {
	r := newRig(t)
	address := r.manager.server.Listener.Addr().String()
	r.slow = retry.System{}
	r.manager.server.Close()
	r.start()
	for state := range r.statuses {
		if state == "Disconnected" {
			break
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	again := &httptest.Server{Listener: listener, EnableHTTP2: true, Config: &http.Server{Handler: http.HandlerFunc(r.manager.serve)}}
	again.TLS = r.manager.server.TLS.Clone()
	again.StartTLS()
	t.Cleanup(func() {
		again.CloseClientConnections()
		again.Close()
	})
	r.manager.await(t, "it is back", func(m *manager) bool { return m.polls > 0 })
	took := time.Since(began)
	t.Logf("connected %s after the listener was back", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Error("that is too long")
	}
}

func TestLockedIsAStateOfItsOwn(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls > 0 })
	key := r.manager.known()
	r.manager.set(func(m *manager) { m.locked = "by an administrator" })
	for state := range r.statuses {
		if state == "Locked" {
			break
		}
	}
	polls := r.manager.count(&r.manager.polls)
	r.manager.set(func(m *manager) { m.locked = "" })
	r.manager.await(t, "it is back with its key", func(m *manager) bool { return m.polls > polls && m.key == key })
}

func TestNetworkChangeReconnectsAtOnce(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "connected", func(m *manager) bool { return m.polls == 1 })
	r.manager.want(nil, protocol.Desired{})
	r.manager.await(t, "it waits", func(m *manager) bool { return m.polls == 2 })
	r.mu.Lock()
	r.addresses = []protocol.Address{{Type: protocol.AddressInternalIP, Address: "192.0.2.9"}}
	changed := r.changed
	r.mu.Unlock()
	changed()
	r.manager.await(t, "it polls anew", func(m *manager) bool { return m.polls == 3 })
}

// The token is of no use once the host is in, and the host comes back without.
func TestThreat01_TokenIsForgotten(t *testing.T) {
	r := newRig(t)
	forgotten := make(chan struct{}, 10)
	r.forget = func() error {
		forgotten <- struct{}{}
		return fmt.Errorf("read-only")
	}
	r.readopt = time.Minute
	r.manager.set(func(m *manager) { m.pending = true })
	r.start()
	r.manager.await(t, "it is pending", func(m *manager) bool { return m.polls > 0 })
	if len(forgotten) != 0 {
		t.Error("forgot the token before the host was approved")
	}
	r.manager.want(nil, protocol.Desired{Hostname: "node-1"})
	<-forgotten
	r.manager.set(func(m *manager) { m.key, m.pending = "", false })
	r.manager.await(t, "it asked again, without a token", func(m *manager) bool { return m.enrolments == 2 })
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if again := r.manager.enrolled[1]; again.Previous == nil || again.Previous.HostID != "id-1" || r.manager.tokens[1] != "" {
		t.Errorf("enrolled as %+v with token %q", again.Previous, r.manager.tokens[1])
	}
	if hello := r.manager.enrolled[0].Hello; hello.Time == nil || hello.TrustDigest != protocol.TrustDigest(r.manager.bundle) {
		t.Errorf("said of itself %+v", hello)
	}
	if len(forgotten) != 0 {
		t.Error("tried to forget the token again")
	}
}

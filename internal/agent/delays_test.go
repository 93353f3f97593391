package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
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

// unplug returns what plugs the host into the network again.
func (r *rig) unplug() (plug func()) {
	var isPlugged atomic.Bool
	r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !isPlugged.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ENETUNREACH}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return func() { isPlugged.Store(true) }
}

func refusingFor(p protocol.Problem, retryAfter string) func(*rig) {
	return func(r *rig) {
		r.manager.set(func(m *manager) {
			m.refuse, m.retryAfter = func(string) *protocol.Problem { return &p }, retryAfter
		})
	}
}

func TestDelayDependsOnError(t *testing.T) {
	refusing := func(p protocol.Problem) func(*rig) { return refusingFor(p, "") }
	for name, test := range map[string]struct {
		prepare  func(*rig)
		from, to time.Duration
	}{
		"no network":            {func(r *rig) { r.unplug() }, time.Second, 4 * time.Second},
		"busy":                  {refusing(protocol.Problem{Status: 503}), 20 * time.Second, time.Minute},
		"busy with Retry-After": {refusingFor(protocol.Problem{Status: 503}, "5"), 5 * time.Second, 10 * time.Second},
		"too many":              {refusingFor(protocol.Problem{Status: 429}, "5"), 25 * time.Second, 65 * time.Second},
		"locked":                {refusing(protocol.Problem{Status: 403, Type: protocol.ProblemLocked}), time.Minute, 5 * time.Minute},
		"revoked":               {refusing(protocol.Problem{Status: 403, Type: protocol.ProblemRevoked}), time.Minute, 5 * time.Minute},
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

// A busy manager sends Retry-After. The hosts of a fleet spread their retries evenly
// over that time again, at most over a minute, from the first retry on.
func TestRetriesAfterRetryAfter(t *testing.T) {
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
			r.with = func(o *agent.Options) { o.Rand = func() float64 { return test.random } }
			for i, wait := range pauses(t, r, 3) {
				if (wait - test.want).Abs() > time.Millisecond {
					t.Errorf("wait %d is %s, want %s", i, wait, test.want)
				}
			}
		})
	}
}

// After the return of the network, the agent pauses only for attempts that had failed
// before, and each of these pauses is short.
func TestReconnectsWithinSeconds(t *testing.T) {
	r := newRig(t)
	pauses := make(chan time.Duration)
	r.clock.waits = pauses
	plug := r.unplug()
	r.start()
	for range 20 {
		<-pauses
	}
	plug()
	var paused time.Duration
	for {
		r.manager.mu.Lock()
		polls, changed := r.manager.polls, r.manager.changed
		r.manager.mu.Unlock()
		if polls > 0 {
			break
		}
		select {
		case d := <-pauses:
			paused += d
		case <-changed:
		}
	}
	if paused > 5*time.Second {
		t.Errorf("the agent paused for %s after the network was back", paused)
	}
}

func TestStatusShowsLocked(t *testing.T) {
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
	r.manager.await(t, "the host polls again with its key", func(m *manager) bool { return m.polls > polls && m.key == key })
}

func TestNetworkChangeReconnectsAtOnce(t *testing.T) {
	r := newRig(t)
	r.start()
	r.manager.await(t, "a long poll is open", taken)
	polls := r.manager.count(&r.manager.polls)
	r.changeAddress(t, "192.0.2.9")
	r.manager.await(t, "the host polls again", func(m *manager) bool { return m.polls > polls })
}

// The agent removes its token after approval, and re-enrols without a token.
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
	r.manager.await(t, "the host polls while pending", func(m *manager) bool { return m.polls > 0 })
	if len(forgotten) != 0 {
		t.Error("removed the token before the host was approved")
	}
	r.manager.want(nil, protocol.Desired{Hostname: "node-1"})
	<-forgotten
	r.manager.set(func(m *manager) { m.key, m.pending = "", false })
	r.manager.await(t, "the host enrols again without a token", func(m *manager) bool { return m.enrolments == 2 })
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	if again := r.manager.enrolled[1]; again.Previous == nil || again.Previous.HostID != "id-1" || r.manager.tokens[1] != "" {
		t.Errorf("enrolled as %+v with token %q", again.Previous, r.manager.tokens[1])
	}
	if hello := r.manager.enrolled[0].Hello; hello.Time == nil || hello.TrustDigest != protocol.TrustDigest(r.manager.bundle) {
		t.Errorf("hello is %+v", hello)
	}
	if len(forgotten) != 0 {
		t.Error("removed the token twice")
	}
}

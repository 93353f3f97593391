package agent_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The host's clock jumps. The agent neither rotates nor discards its key, and its
// status shows the clock skew.
func TestThreat28_AgeOfAKeyByTheManagersClock(t *testing.T) {
	for _, clock := range []struct {
		name string
		jump time.Duration
	}{
		{"ten years ahead", 10 * 365 * 24 * time.Hour}, {"1970", -time.Since(time.Unix(0, 0))}, {"a month back", -30 * 24 * time.Hour},
	} {
		t.Run(clock.name, func(t *testing.T) {
			jump := clock.jump
			r := newRig(t)
			stop := r.start()
			r.manager.await(t, "the agent knows the time and polls again", func(m *manager) bool { return m.polls > 1 })
			key := r.manager.known()
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			r.clock.offset = jump
			connections := make(chan connection.Status, 100)
			r.shown = func(c connection.Status) { connections <- c }
			r.start()
			status := <-connections
			skew, err := time.ParseDuration(status.ClockSkew)
			if status.State != connection.Connected || err != nil || (skew-jump).Abs() > time.Hour {
				t.Errorf("status is %+v, the clock skew is %s", status, jump)
			}
			r.manager.want(bootstrapOf("a"), protocol.Desired{})
			r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
			if r.manager.known() != key || r.manager.count(&r.manager.rotations) != 0 || r.manager.count(&r.manager.enrolments) != 1 {
				t.Errorf("the key changed: %s", r.manager.describe())
			}
			r.aged()
			r.manager.await(t, "the agent rotates an old key by the manager's clock", rotated)
		})
	}
}

// An earlier agent process received a future time from the manager and rotated its
// key then. The agent replaces the stored time by the manager's present time, and the
// key's age counts from now.
func TestThreat28_TheManagersClockWasAhead(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.await(t, "the host is enrolled", func(m *manager) bool { return m.polls > 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	present := time.Now()
	wrong, err := json.Marshal(state.Clock{ServerTime: present.AddDate(2, 0, 0), Agreed: present.AddDate(0, 0, -1)})
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(r.disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.UpdateIdentity(func(i *state.Identity) { i.RotatedAt = present.AddDate(2, 0, 0).UTC() }); err != nil {
		t.Fatal(err)
	}
	r.disk.content["clock.json"] = string(wrong)
	polls := r.manager.count(&r.manager.polls)
	stop = r.start()
	r.manager.await(t, "the host polls again", func(m *manager) bool { return m.polls > polls+1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if store, err = state.Open(r.disk); err != nil {
		t.Fatal(err)
	}
	if at := store.Identity().RotatedAt; at.Sub(present).Abs() > time.Hour {
		t.Errorf("the key's age counts from %s, the time is %s", at, present)
	}
	known := store.Clock()
	if known.ServerTime.Sub(present).Abs() > time.Hour || known.Agreed.Sub(present).Abs() > time.Hour || known.Skew.Abs() > time.Hour {
		t.Errorf("stored clock is %+v, the time is %s", known, present)
	}
}

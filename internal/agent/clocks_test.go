package agent_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The host's clock was right once, and is not any more. Its key gets no older
// by that, and none is thrown away; a person is told how far off the clock is.
func TestThreat28_AgeOfAKeyByTheManagersClock(t *testing.T) {
	for name, jump := range map[string]time.Duration{
		"1970": -time.Since(time.Unix(0, 0)), "ten years ahead": 10 * 365 * 24 * time.Hour, "a month back": -30 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			stop := r.start()
			r.manager.await(t, "it has heard the time and polls again", func(m *manager) bool { return m.polls > 1 })
			key := r.manager.known()
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			r.clock.offset = jump
			connections := make(chan agent.Connection, 100)
			r.shown = func(c agent.Connection) { connections <- c }
			r.start()
			connection := <-connections
			skew, err := time.ParseDuration(connection.ClockSkew)
			if connection.State != agent.Connected || err != nil || (skew-jump).Abs() > time.Hour {
				t.Errorf("shows %+v, the clock is off by %s", connection, jump)
			}
			r.manager.want(bootstrapOf("a"), protocol.Desired{})
			r.manager.await(t, "it works", ended("a", protocol.StateSucceeded))
			if r.manager.known() != key || r.manager.count(&r.manager.rotations) != 0 || r.manager.count(&r.manager.enrolments) != 1 {
				t.Errorf("the key changed: %s", r.manager.describe())
			}
			r.aged()
			r.manager.await(t, "it is rotated when the manager's time has come", rotated)
		})
	}
}

// An earlier run of the agent was told a time by which the manager's certificate
// has expired, and rotated its key then. What the manager says now is remembered in
// its place, and the key's age counts from now.
func TestThreat28_TheManagersClockWasAhead(t *testing.T) {
	r := newRig(t)
	stop := r.start()
	r.manager.await(t, "it is enrolled", func(m *manager) bool { return m.polls > 0 })
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
	r.manager.await(t, "it polls again", func(m *manager) bool { return m.polls > polls+1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if store, err = state.Open(r.disk); err != nil {
		t.Fatal(err)
	}
	if at := store.Identity().RotatedAt; at.Sub(present).Abs() > time.Hour {
		t.Errorf("counts the key's age from %s, it is %s", at, present)
	}
	known := store.Clock()
	if known.ServerTime.Sub(present).Abs() > time.Hour || known.Agreed.Sub(present).Abs() > time.Hour || known.Skew.Abs() > time.Hour {
		t.Errorf("remembers %+v, it is %s", known, present)
	}
}

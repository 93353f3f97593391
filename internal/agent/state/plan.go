package state

import (
	"reflect"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Trust is where managers are and what proves them, as the last plan said.
type Trust struct {
	Servers     []string `json:"servers,omitempty"`
	TrustBundle string   `json:"trustBundle,omitempty"`
	// Config names the configuration that was in force when this was learnt.
	// With another one, a person has changed it, and it counts again.
	Config string `json:"config,omitempty"`
}

// Plan is the last plan that the host was given.
type Plan struct {
	Desired   protocol.Desired    `json:"desired"`
	Operation *protocol.Operation `json:"operation,omitempty"`
}

// Clock is what is known of the time.
type Clock struct {
	// ServerTime is the latest time that an authenticated server told.
	ServerTime time.Time `json:"serverTime,omitzero"`
	// Skew is how far the host's clock was ahead of it then.
	Skew time.Duration `json:"skew,omitempty"`
	// Agreed is the latest time that had passed by both clocks when they agreed.
	Agreed time.Time `json:"agreed,omitzero"`
}

// serverTimeStep is how much later the server's time is before it is written
// again: an idle host doesn't write to its disk every minute.
const serverTimeStep = time.Hour

// skewStep is how much the skew has to change before it is written again.
const skewStep = time.Minute

// Trust returns what plans have taught.
func (s *Store) Trust() Trust {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust
}

// SetTrust remembers where managers are.
func (s *Store) SetTrust(trust Trust) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reflect.DeepEqual(trust, s.trust) {
		return nil
	}
	if err := write(s.files, trustFile, trust); err != nil {
		return err
	}
	s.trust = trust
	return nil
}

// Plan returns the last plan.
func (s *Store) Plan() Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan
}

// SetPlan remembers a plan.
func (s *Store) SetPlan(plan Plan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reflect.DeepEqual(plan, s.plan) {
		return nil
	}
	if err := write(s.files, planFile, plan); err != nil {
		return err
	}
	s.plan = plan
	return nil
}

// Clock returns what is known of the time.
func (s *Store) Clock() Clock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// SetClock remembers what is known of the time.
func (s *Store) SetClock(next Clock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.clock
	later := next.ServerTime.Sub(known.ServerTime)
	if later >= 0 && later < serverTimeStep && next.Agreed.Sub(known.Agreed) < serverTimeStep &&
		(next.Skew-known.Skew).Abs() < skewStep {
		return nil
	}
	if err := write(s.files, clockFile, next); err != nil {
		return err
	}
	s.clock = next
	return nil
}

package state

import (
	"reflect"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Trust has the servers and the trust bundle of the last plan.
type Trust struct {
	Servers     []string `json:"servers,omitempty"`
	TrustBundle string   `json:"trustBundle,omitempty"`
	// Config identifies the configuration at the time of that plan. If it differs from the
	// present one, a person has edited the configuration, which then takes precedence.
	Config string `json:"config,omitempty"`
	// Successor is the management cluster that the host may follow to; nil: it stays here.
	Successor *Management `json:"successor,omitempty"`
	// Former is the management cluster that the host has followed a successor from; nil
	// if it has never done so.
	Former *Management `json:"former,omitempty"`
}

// Management is how to reach a management cluster.
type Management struct {
	Servers     []string `json:"servers"`
	TrustBundle string   `json:"trustBundle"`
}

// Plan is the last plan of this host.
type Plan struct {
	Desired   protocol.Desired    `json:"desired"`
	Operation *protocol.Operation `json:"operation,omitempty"`
}

// Clock has what the agent knows of the time.
type Clock struct {
	// ServerTime is the latest time that an authenticated server reported.
	ServerTime time.Time `json:"serverTime,omitzero"`
	// Skew is how far the host's clock was ahead of ServerTime.
	Skew time.Duration `json:"skew,omitempty"`
	// Agreed is the latest time that had passed by both clocks while they agreed.
	Agreed time.Time `json:"agreed,omitzero"`
}

// serverTimeStep is by how much ServerTime must grow to be written again: an idle host
// should not write to its disk every minute.
const serverTimeStep = time.Hour

// skewStep is by how much Skew must change to be written again.
const skewStep = time.Minute

// Trust returns the servers and the trust bundle of the last plan.
func (s *Store) Trust() Trust {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust
}

// SetTrust stores the servers and the trust bundle of a plan.
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

// SetPlan stores a plan.
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

// Clock returns what was stored last.
func (s *Store) Clock() Clock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

// SetClock stores next, unless it hardly differs.
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

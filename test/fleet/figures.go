package fleet

import (
	"encoding/json"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// States of a host that no agent.Connection has.
const (
	stateOff      = "Off"
	stateStarting = "Starting"
)

// Figures are how many hosts there are in each state.
type Figures struct {
	// Hosts counts them by agent.Connection.State, or Starting before there was any,
	// or Off.
	Hosts map[string]int `json:"hosts"`
	// At is when it was so.
	At time.Time `json:"at"`
}

// Connected counts hosts that have a connection to a manager, approved or not.
func (f Figures) Connected() int { return f.Hosts[agent.Connected] + f.Hosts[agent.Pending] }

// counts counts hosts by state, so that nobody has to look at all of them.
type counts struct {
	mu     sync.Mutex
	states map[string]int
}

func (c *counts) move(from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states == nil {
		c.states = map[string]int{}
	}
	if from != "" {
		c.states[from]--
	}
	c.states[to]++
}

// countedAs is the state that a host counts as.
func countedAs(b *boot, c agent.Connection) string {
	switch {
	case b == nil:
		return stateOff
	case c.State == "":
		return stateStarting
	}
	return c.State
}

// Figures are the present ones.
func (f *Fleet) Figures() Figures {
	f.counts.mu.Lock()
	defer f.counts.mu.Unlock()
	states := maps.Clone(f.counts.states)
	maps.DeleteFunc(states, func(_ string, n int) bool { return n == 0 })
	return Figures{Hosts: states, At: time.Now()}
}

// Status is what there is to know of a host.
type Status struct {
	// Name is the host's in the fleet, Hostname what it calls itself.
	Name     string     `json:"name"`
	Hostname string     `json:"hostname"`
	Address  netip.Addr `json:"address"`
	// Namespace and ElementalHost are what the manager has called it; blank before it
	// is enrolled.
	Namespace     string `json:"namespace,omitempty"`
	ElementalHost string `json:"elementalHost,omitempty"`
	// State is as in Figures, Since when it became so, Error why.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error,omitempty"`
	// PlanAt is when the agent had the last plan durably.
	PlanAt    time.Time           `json:"planAt,omitzero"`
	Operation *protocol.Operation `json:"operation,omitempty"`
	Done      Done                `json:"done"`
}

// Status is the host's present one.
func (h *Host) Status() Status {
	h.mu.Lock()
	s := Status{
		Name: h.Name, Address: h.Address, State: countedAs(h.boot, h.connection),
		Since: h.connection.Since, Error: h.connection.Error, Done: h.done,
	}
	h.mu.Unlock()
	var who state.Identity
	var plan state.Plan
	h.disk.decode(identityDocument, &who)
	h.disk.decode(planDocument, &plan)
	s.Namespace, s.ElementalHost, s.Operation = who.Namespace, who.Name, plan.Operation
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	s.Hostname, s.PlanAt = h.disk.hostname, h.disk.planned
	return s
}

// decode reads a document of the agent's, if it is there.
func (d *disk) decode(name string, into any) {
	if data, err := d.read(name); err == nil {
		_ = json.Unmarshal(data, into) // the agent wrote it
	}
}

package fleet

import (
	"encoding/json"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// States of a host without a connection.Status.
const (
	stateOff      = "Off"
	stateStarting = "Starting"
)

// Figures are the numbers of hosts by state.
type Figures struct {
	// Hosts counts hosts by connection.Status.State, Starting or Off.
	Hosts map[string]int `json:"hosts"`
	// At is the time of the count.
	At time.Time `json:"at"`
}

// Connected counts hosts that have a connection to a manager, approved or not.
func (f Figures) Connected() int { return f.Hosts[connection.Connected] + f.Hosts[connection.Pending] }

// counts counts hosts by state, so that Figures need not visit all hosts.
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

// countedAs returns the state as which a host is counted.
func countedAs(b *boot, c connection.Status) string {
	switch {
	case b == nil:
		return stateOff
	case c.State == "":
		return stateStarting
	}
	return c.State
}

// Figures returns the current figures.
func (f *Fleet) Figures() Figures {
	f.counts.mu.Lock()
	defer f.counts.mu.Unlock()
	states := maps.Clone(f.counts.states)
	maps.DeleteFunc(states, func(_ string, n int) bool { return n == 0 })
	return Figures{Hosts: states, At: time.Now()}
}

// Status is the status of a host.
type Status struct {
	// Name is the host's name in the fleet, Hostname its host name.
	Name     string     `json:"name"`
	Hostname string     `json:"hostname"`
	Address  netip.Addr `json:"address"`
	// Namespace and ElementalHost name its ElementalHost; blank before enrolment.
	Namespace     string `json:"namespace,omitempty"`
	ElementalHost string `json:"elementalHost,omitempty"`
	// State is the state as in Figures, Since its start, Error its reason.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error,omitempty"`
	// PlanAt is when the agent stored the last plan.
	PlanAt    time.Time           `json:"planAt,omitzero"`
	Operation *protocol.Operation `json:"operation,omitempty"`
	// Successor has the servers of the management cluster that the host may follow to.
	Successor []string `json:"successor,omitempty"`
	Done      Done     `json:"done"`
}

// Status returns the current status.
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
	// Agents of v0.1.0 have no successor in state.Trust: see Settings.Adjust.
	var trust struct {
		Successor struct {
			Servers []string `json:"servers"`
		} `json:"successor"`
	}
	h.disk.decode(trustDocument, &trust)
	s.Successor = trust.Successor.Servers
	s.Namespace, s.ElementalHost, s.Operation = who.Namespace, who.Name, plan.Operation
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	s.Hostname, s.PlanAt = h.disk.hostname, h.disk.planned
	return s
}

// decode reads a document of the agent if it exists.
func (d *disk) decode(name string, into any) {
	if data, err := d.read(name); err == nil {
		_ = json.Unmarshal(data, into) // the agent wrote it
	}
}

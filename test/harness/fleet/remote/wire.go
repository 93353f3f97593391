package remote

import (
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// Action is an action on hosts.
type Action string

// Actions.
const (
	PowerOn  Action = "PowerOn"
	PowerOff Action = "PowerOff"
	Reboot   Action = "Reboot"
	Crash    Action = "Crash"
	Cut      Action = "Cut"
	Join     Action = "Join"
)

// Do applies the action to a host.
func (a Action) Do(h *fleet.Host) {
	switch a {
	case PowerOn:
		h.PowerOn()
	case PowerOff:
		h.PowerOff()
	case Reboot:
		h.Reboot()
	case Crash:
		h.Crash()
	case Cut:
		h.SetNetwork(false)
	case Join:
		h.SetNetwork(true)
	}
}

// Known reports whether the action exists.
func (a Action) Known() bool {
	switch a {
	case PowerOn, PowerOff, Reboot, Crash, Cut, Join:
		return true
	}
	return false
}

// request is one request. The first one has Settings.
type request struct {
	ID       int             `json:"id"`
	Settings *fleet.Settings `json:"settings,omitempty"`
	Figures  bool            `json:"figures,omitempty"`
	// Status asks for the Status of Hosts.
	Status bool          `json:"status,omitempty"`
	Faults *fleet.Faults `json:"faults,omitempty"`
	Action Action        `json:"action,omitempty"`
	Over   time.Duration `json:"over,omitempty"`
	// Hosts are names; none means all.
	Hosts []string `json:"hosts,omitempty"`
}

// response answers the request with the same ID.
type response struct {
	ID      int            `json:"id"`
	Error   string         `json:"error,omitempty"`
	Figures *fleet.Figures `json:"figures,omitempty"`
	Status  []fleet.Status `json:"status,omitempty"`
}

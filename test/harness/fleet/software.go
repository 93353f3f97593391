package fleet

import (
	"context"
	"net"
	"net/netip"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Software executes bootstrap data and runs the installed software of hosts. Calls for
// different hosts are concurrent. Calls for the same host are sequential, except Halt,
// Network and Refuse: a power cut interrupts Bootstrap and Boot, and their contexts have
// ended when Halt is called.
type Software interface {
	// Check validates bootstrap data without executing it.
	Check(data []byte, format string) error
	// Bootstrap executes bootstrap data, at most once per host and job; a power cut fails
	// it, a crash of the agent does not interrupt it. It writes the same files below
	// m.Root as real software: the agent reads the kubeconfigs (with inline certificates),
	// the certificates and the static Pods there. An error is the bootstrap's failure.
	Bootstrap(ctx context.Context, m Machine, data []byte, format string, progress func(step string)) error
	// Boot starts the installed software, if any.
	Boot(ctx context.Context, m Machine) error
	// Halt stops the software immediately, as a power cut and a reboot do. When it returns,
	// nothing answers.
	Halt(m Machine)
	// Network disconnects or reconnects the host. A disconnected host keeps running, but
	// only itself (m.Address) reaches its servers, and it reaches no other host.
	Network(m Machine, up bool)
	// Refuse makes the host refuse connections to an address and port, open ones included,
	// unless they come from m.Address. The zero AddrPort or a reboot removes the rule.
	Refuse(m Machine, at netip.AddrPort)
	// Remove removes the software permanently, as a reset does after the reboot. It may be
	// repeated.
	Remove(m Machine) error
}

// Upgrader is a Software whose nodes can be upgraded in place. The hosts of any other
// Software can't upgrade Kubernetes, and stage no bundles.
type Upgrader interface {
	// CheckUpgrade returns an error if the node on a host can't be upgraded, which is then
	// the upgrade's failure. It changes nothing, and may be called while Boot runs.
	CheckUpgrade(ctx context.Context, m Machine, to protocol.NodeUpgrade) error
	// Upgrade upgrades the node on a host. It is called again after an error, a power cut or
	// a crash of the agent.
	Upgrade(ctx context.Context, m Machine, to protocol.NodeUpgrade, progress func(step string)) error
}

// Machine is a host as its Software sees it. Name identifies the host; Hostname may change
// with the plan.
type Machine struct {
	// Name is the host's unique name in the fleet, such as "host-0042".
	Name string
	// Hostname is the host name that the agent has set.
	Hostname string
	// Address is in 127.0.0.0/8 and unique on this machine, across Fleets and processes.
	// The agent connects from it.
	Address netip.Addr
	// Root is the folder of its root file system. It is created before Bootstrap, removed
	// after Remove, and survives Halt.
	Root string
	// Dial connects as programs on the host do: names are those of its /etc/hosts, and the
	// loopback address 127.0.0.1 leads to the host's own forwarder.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

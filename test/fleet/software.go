package fleet

import (
	"context"
	"net/netip"
)

// Software is what bootstrap data makes of hosts. Its methods are called for many
// hosts at once, but one at a time for the same host, save for Halt, Network and
// Refuse: a power cut ends Bootstrap and Boot in the midst of whatever they do, and
// their contexts have ended when Halt is called.
type Software interface {
	// Check reports what is wrong with bootstrap data. Nothing is done.
	Check(data []byte, format string) error
	// Bootstrap executes bootstrap data, at most once per host and job: one that a
	// power cut ended has failed. It goes on while the agent crashes and starts again.
	// It leaves below m.Root what real software leaves: the agent reads the kubeconfigs
	// (with their certificates inline), the certificates and the static Pods there. An
	// error is the bootstrap's failure.
	Bootstrap(ctx context.Context, m Machine, data []byte, format string, progress func(step string)) error
	// Boot starts what is installed, and does nothing on a host without.
	Boot(ctx context.Context, m Machine) error
	// Halt ends it at a stroke, as a power cut and a reboot do. What it served has
	// stopped answering when Halt returns.
	Halt(m Machine)
	// Network cuts the host off, or joins it up again: what it serves is not reachable
	// meanwhile but by itself (from m.Address), and it reaches nobody. It keeps running.
	Network(m Machine, up bool)
	// Refuse has connections to this host at the address and port refused from now on,
	// open ones included, unless they come from m.Address; the zero AddrPort ends that,
	// and so does a reboot.
	Refuse(m Machine, at netip.AddrPort)
	// Remove takes it all away for good, as a reset does after the reboot. It may be
	// repeated.
	Remove(m Machine) error
}

// Machine is a host as its software sees it. It is comparable, but Hostname changes
// with the plan: Name tells hosts apart.
type Machine struct {
	// Name is the host's in the fleet, such as "host-0042"; hosts of one Fleet have
	// different ones.
	Name string
	// Hostname is as the agent has set it last.
	Hostname string
	// Address is one of 127.0.0.0/8 that no other host has, be it of another Fleet or
	// process on this machine. The agent connects from it.
	Address netip.Addr
	// Root is its root file system: a folder, made before Bootstrap is called and
	// removed after Remove. It survives Halt.
	Root string
}

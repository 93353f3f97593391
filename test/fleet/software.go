package fleet

import (
	"context"
	"net/netip"
)

// Software is what bootstrap data makes of hosts. Its methods are called for many
// hosts at once, but never twice at once for the same one, save for Halt: a power
// cut ends Bootstrap and Boot in the midst of whatever they do, and their contexts
// have ended when Halt is called.
type Software interface {
	// Bootstrap executes bootstrap data, once for each host and job; again for the
	// same job only if a power cut or a crash of the agent ended it. It leaves below
	// m.Root what real software leaves: the agent reads the kubeconfigs, the
	// certificates and the static Pods there. An error is the bootstrap's failure.
	Bootstrap(ctx context.Context, m Machine, data []byte, format string, progress func(step string)) error
	// Boot starts what is installed, and does nothing on a host without.
	Boot(ctx context.Context, m Machine) error
	// Halt ends it at a stroke, as a power cut and a reboot do. What it served has
	// stopped answering when Halt returns.
	Halt(m Machine)
	// Network cuts the host off, or joins it up again: what it serves is not reachable
	// meanwhile, and it reaches nobody. It keeps running.
	Network(m Machine, up bool)
	// Remove takes it all away for good, as a reset does after the reboot. It may be
	// repeated.
	Remove(m Machine) error
}

// Machine is a host as its software sees it. It is comparable, but Hostname changes
// with the plan: Name tells hosts apart.
type Machine struct {
	// Name is the host's in the fleet, such as "host-00042"; hosts of one Fleet have
	// different ones.
	Name string
	// Hostname is as the agent has set it last.
	Hostname string
	// Address is one of 127.0.0.0/8 that no other host of the Fleet has.
	Address netip.Addr
	// Root is its root file system: a folder, made before Bootstrap is called and
	// removed after Remove. It survives Halt.
	Root string
}

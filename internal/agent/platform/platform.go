package platform

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Platform is everything that the agent needs of the operating system. Its
// methods may be called concurrently.
type Platform interface {
	Inspector
	Network
	HostnameSetter
	NodeStopper
	NodeCleaner
	Rebooter
}

// Inspector reads facts about the host.
type Inspector interface {
	// Inventory returns the hardware and the operating system. Unknown facts are
	// blank.
	Inventory(ctx context.Context) (protocol.Inventory, error)
	// Kubernetes returns the programs of Kubernetes, which the inventory does not have.
	// Unknown facts are blank. While nothing changes on the host, it starts no program.
	Kubernetes(ctx context.Context) (protocol.Kubernetes, error)
	// Preflight returns what kubeadm and the kubelet need of the operating system. It starts
	// no program of its own. Unknown facts are blank.
	Preflight(ctx context.Context) (protocol.Preflight, error)
	// Cleanliness returns the leftovers of former nodes.
	Cleanliness(ctx context.Context) (protocol.Cleanliness, error)
}

// Network reads the host's addresses.
type Network interface {
	// Addresses returns the host name and the addresses at which others reach the
	// host, the preferred ones first.
	Addresses(ctx context.Context) ([]protocol.Address, error)
	// LocalAddresses returns all addresses at which a server on this host may
	// listen, the preferred ones first.
	LocalAddresses() []string
	// WatchAddresses calls changed whenever an address or a route may have
	// changed. It returns nil when ctx ends; it may return nil earlier and
	// continue to call changed until then.
	WatchAddresses(ctx context.Context, changed func()) error
}

// HostnameSetter sets the host's name.
type HostnameSetter interface {
	// SetHostname sets the name of the running system and of the next boot. It
	// changes nothing if the host has that name.
	SetHostname(ctx context.Context, name string) error
}

// NodeStopper stops the Kubernetes node on the host.
type NodeStopper interface {
	// Stop ends the node's processes and removes what would start them at the
	// next boot. It may be repeated.
	Stop(ctx context.Context) error
}

// NodeCleaner removes the leftovers of a node.
type NodeCleaner interface {
	// PreexistingPaths returns the paths on the host that Clean would remove if
	// a node had created them. A bootstrap records them before it begins.
	PreexistingPaths() ([]string, error)
	// Clean removes the leftovers of a stopped node, except the preexisting
	// paths. If preexisting is nil, these paths are unknown, and Clean keeps every
	// path that may be one of them. It may be repeated.
	Clean(ctx context.Context, preexisting []string) error
}

// Rebooter reboots the host.
type Rebooter interface {
	// BootID returns an identifier that is the same until the next boot.
	BootID() (string, error)
	// Reboot returns only if ctx ended, as it does when the system shuts down, or
	// if the host did not reboot.
	Reboot(ctx context.Context) error
}

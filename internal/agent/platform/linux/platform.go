package linux

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// RuntimeDir holds files that exist until the next boot, since /run is in
// memory.
const RuntimeDir = "/run/elemental-agent"

// Platform is a platform.Platform on Linux with systemd. Use New.
type Platform struct {
	inventory
	network
	inspector
	hostname
	addressWatcher
	nodeStopper
	nodeCleaner
	rebooter
}

// EndpointCleaner removes what the agent created on the host for the control
// plane endpoint of its cluster. Both methods may be called at any time, also
// on a host without an endpoint.
type EndpointCleaner interface {
	// Remove removes it. The node's containers must have ended before.
	Remove(ctx context.Context) error
	// Leftovers lists what Remove would remove.
	Leftovers(ctx context.Context) ([]string, error)
}

// Installation is the bundle of Kubernetes that is installed on the host.
type Installation interface {
	// Has reports whether the file came with the bundle.
	Has(path string) bool
	// Leftovers names what there is of it. A host with a bundle is not clean.
	Leftovers(ctx context.Context) ([]string, error)
}

// Kernel makes the system calls of this package.
type Kernel interface {
	// SetHostname sets the running system's name.
	SetHostname(name string) error
	// Unmount detaches a mount immediately, even if it is in use.
	Unmount(path string) error
	// Kill sends SIGKILL to a process.
	Kill(pid int) error
}

// Options configure a Platform; the zero value means this machine.
type Options struct {
	// Root replaces "/".
	Root     string
	Commands oscommand.Runner
	Clock    retry.Clock
	// Interfaces lists the network interfaces without the loopback interface.
	Interfaces func() ([]platform.NetworkInterface, error)
	Kernel     Kernel
	// Endpoint is cleaned up by Stop and Clean; it may be nil.
	Endpoint EndpointCleaner
	// Installation may be nil.
	Installation Installation
}

// New returns a Platform.
func New(o Options) *Platform {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Commands == nil {
		o.Commands = oscommand.System{}
	}
	if o.Clock == nil {
		o.Clock = retry.System{}
	}
	if o.Interfaces == nil {
		o.Interfaces = systemInterfaces
	}
	if o.Kernel == nil {
		o.Kernel = systemKernel{}
	}
	if o.Endpoint == nil {
		o.Endpoint = noEndpoint{}
	}
	if o.Installation == nil {
		o.Installation = noInstallation{}
	}
	root, run := root(o.Root), runner{o.Commands}
	processes := processes{root: root, kernel: o.Kernel}
	filter := packetFilter{run}
	name := hostname{root: root, kernel: o.Kernel}
	nics := network{root: root, interfaces: o.Interfaces, hostname: name}
	stopper := nodeStopper{root: root, systemd: systemd{run}, processes: processes, endpoint: o.Endpoint}
	inventory := newInventory(o, nics)
	return &Platform{
		inventory: inventory,
		network:   nics,
		inspector: inspector{
			root: root, processes: processes, packetFilter: filter, interfaces: o.Interfaces, endpoint: o.Endpoint, installation: o.Installation,
		},
		hostname:       name,
		addressWatcher: addressWatcher{clock: o.Clock},
		nodeStopper:    stopper,
		nodeCleaner: nodeCleaner{
			root: root, stopper: stopper, runner: run, packetFilter: filter, kernel: o.Kernel, clock: o.Clock, interfaces: o.Interfaces,
			origin: inventory.software.Origin,
		},
		rebooter: rebooter{root: root, runner: run, clock: o.Clock},
	}
}

// noEndpoint is the EndpointCleaner of a host whose agent manages no endpoint.
type noEndpoint struct{}

func (noEndpoint) Remove(context.Context) error { return nil }

func (noEndpoint) Leftovers(context.Context) ([]string, error) { return nil, nil }

// noInstallation is the Installation of a host whose agent installs no bundles.
type noInstallation struct{}

func (noInstallation) Has(string) bool { return false }

func (noInstallation) Leftovers(context.Context) ([]string, error) { return nil, nil }

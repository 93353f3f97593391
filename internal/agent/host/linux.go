package host

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// RuntimeDir is gone after a reboot, since /run is in memory.
const RuntimeDir = "/run/elemental-agent"

// Linux is a host with systemd. Use New.
type Linux struct {
	root       string
	commands   Commander
	clock      retry.Clock
	interfaces func() ([]Interface, error)
	kernel     Kernel
	endpoint   Endpoint
}

// Endpoint is what was done on the host for the endpoint of its cluster. Both
// may be called at any time, also on a host where nothing was done.
type Endpoint interface {
	// Remove takes it back once the node's containers have ended.
	Remove(ctx context.Context) error
	// Leftovers names what Remove has not taken back.
	Leftovers(ctx context.Context) ([]string, error)
}

// Kernel is what only the kernel can do.
type Kernel interface {
	// SetHostname names the running system.
	SetHostname(name string) error
	// Unmount detaches a mount at once, also one that is in use.
	Unmount(path string) error
	// Kill ends a process at once.
	Kill(pid int) error
}

// Interface is a network interface with its addresses.
type Interface struct {
	Name      string
	MAC       string
	Up        bool
	Addresses []*net.IPNet
}

// Options are what a Linux works with; the zero value is this machine.
type Options struct {
	// Root stands for "/".
	Root       string
	Commands   Commander
	Clock      retry.Clock
	Interfaces func() ([]Interface, error)
	Kernel     Kernel
	// Endpoint goes with a reset; nil means that there is nothing.
	Endpoint Endpoint
}

// New returns the host.
func New(o Options) *Linux {
	l := &Linux{root: o.Root, commands: o.Commands, clock: o.Clock, interfaces: o.Interfaces, kernel: o.Kernel, endpoint: o.Endpoint}
	if l.root == "" {
		l.root = "/"
	}
	if l.commands == nil {
		l.commands = Commands{}
	}
	if l.clock == nil {
		l.clock = retry.System{}
	}
	if l.interfaces == nil {
		l.interfaces = systemInterfaces
	}
	if l.kernel == nil {
		l.kernel = systemKernel{}
	}
	return l
}

func (l *Linux) path(name string) string { return filepath.Join(l.root, name) }

// text is the content of a small file without the white space around it, or ""
// where there is none.
func (l *Linux) text(name string) string {
	data, err := os.ReadFile(l.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(data), ""))
}

func (l *Linux) exists(name string) bool {
	_, err := os.Lstat(l.path(name))
	return err == nil
}

func systemInterfaces() ([]Interface, error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list := make([]Interface, 0, len(found))
	for _, nic := range found {
		if nic.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := nic.Addrs()
		if err != nil {
			continue // it vanished meanwhile, as a pod's does
		}
		one := Interface{Name: nic.Name, MAC: nic.HardwareAddr.String(), Up: nic.Flags&net.FlagUp != 0}
		for _, address := range addresses {
			if ip, ok := address.(*net.IPNet); ok {
				one.Addresses = append(one.Addresses, ip)
			}
		}
		list = append(list, one)
	}
	return list, nil
}

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/hardware"
)

// system is the simulated operating system, the platform.Platform of one process of the agent.
type system struct {
	boot     *boot
	mount    *mount
	endpoint *endpoint.Applier
}

func (s *system) Inventory(context.Context) (protocol.Inventory, error) {
	h := s.boot.host
	return hardware.Inventory(h.fleet.settings.Seed, h.Name, h.Address), nil
}

// Kubernetes returns programs that bootstrap data can use. Only an upgrade replaces them.
func (s *system) Kubernetes(context.Context) (protocol.Kubernetes, error) {
	d := &s.boot.host.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return hardware.Kubernetes(cmp.Or(d.kubernetes, "v1.36.3")), nil
}

// Preflight returns the facts of a host that lacks nothing.
func (s *system) Preflight(context.Context) (protocol.Preflight, error) {
	return hardware.Prepared(), nil
}

func (s *system) Addresses(context.Context) ([]protocol.Address, error) {
	m := s.boot.host.machine()
	return []protocol.Address{
		{Type: protocol.AddressInternalIP, Address: m.Address.String()}, {Type: protocol.AddressHostname, Address: m.Hostname},
	}, nil
}

func (s *system) LocalAddresses() []string { return []string{s.boot.host.Address.String()} }

// Cleanliness finds installed software and leftovers of the endpoint.
func (s *system) Cleanliness(ctx context.Context) (protocol.Cleanliness, error) {
	found, err := s.endpoint.Leftovers(ctx)
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	if s.boot.host.isInstalled() {
		files, err := leftFiles(s.boot.host.root(), protocol.MaxLeftovers)
		if err != nil {
			return protocol.Cleanliness{}, err
		}
		found = append(append(found, "what bootstrap data has installed"), files...)
	}
	return protocol.Cleanliness{Clean: len(found) == 0, Leftovers: found[:min(len(found), protocol.MaxLeftovers)]}, nil
}

// leftFiles returns the names of at most a given number of files below root.
func leftFiles(root string, most int) (found []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case len(found) == most:
			return fs.SkipAll
		case entry.Type().IsRegular():
			found = append(found, "file "+strings.TrimPrefix(path, root))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for what was left below %s: %w", root, err)
	}
	return found, nil
}

func (s *system) SetHostname(_ context.Context, name string) error {
	return s.mount.change(func(d *disk) { d.hostname = name })
}

// WatchAddresses calls changed when the network is available again; addresses
// never change. It returns immediately, so that no goroutine waits.
func (s *system) WatchAddresses(ctx context.Context, changed func()) error {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()
	s.boot.networkChanged = func() {
		if ctx.Err() == nil {
			changed()
		}
	}
	return nil
}

// PreexistingPaths returns none, because the root file system is empty. It creates
// it: nothing is written there before this call.
func (s *system) PreexistingPaths() ([]string, error) {
	if s.boot.host.fleet.settings.Software == nil {
		return nil, nil
	}
	return nil, s.boot.host.makeRoot()
}

func (s *system) Stop(context.Context) error {
	if err := s.mount.change(func(d *disk) { d.stopped = true }); err != nil {
		return err
	}
	if software := s.boot.host.fleet.settings.Software; software != nil && s.boot.host.isInstalled() {
		s.boot.endJob()
		software.Halt(s.boot.host.machine())
	}
	return nil
}

func (s *system) BootID() (string, error) { return s.boot.id, nil }

func (s *system) Reboot(ctx context.Context) error {
	s.boot.host.fleet.background(func() { s.boot.host.restart(s.boot) })
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s *system) Clean(ctx context.Context, _ []string) error {
	h := s.boot.host
	if err := s.endpoint.Remove(ctx); err != nil {
		return err
	}
	s.boot.software.Lock()
	defer s.boot.software.Unlock()
	if software := h.fleet.settings.Software; software != nil && h.isInstalled() {
		if err := software.Remove(h.machine()); err != nil {
			return fmt.Errorf("removing what was installed: %w", err)
		}
	}
	if err := os.RemoveAll(h.root()); err != nil {
		return fmt.Errorf("removing the root file system of %s: %w", h.Name, err)
	}
	h.count(func(d *Done) { d.Resets++ })
	return s.mount.change(func(d *disk) { d.installed, d.stopped = false, false })
}

// refusal is the packet-filter rule that refuses a former endpoint.
var refusal = regexp.MustCompile(`daddr (\S+) tcp dport ([0-9]+) reject`)

// Run implements oscommand.Runner. It imitates systemctl, and nft with the one table
// of the endpoint.
func (s *system) Run(_ context.Context, stdin string, args ...string) (string, error) {
	switch line := strings.Join(args, " "); line {
	case "systemctl try-restart kubelet.service":
		return "", nil
	case "nft list table inet elemental_endpoint":
		s.boot.mu.Lock()
		defer s.boot.mu.Unlock()
		if s.boot.table == "" {
			return "", errors.New("running nft: No such file or directory")
		}
		return s.boot.table, nil
	case "nft -f -":
		return "", s.filter(stdin)
	default:
		return "", fmt.Errorf("running %s: a virtual host has no such command: %w", line, exec.ErrNotFound)
	}
}

// filter applies a script for nft.
func (s *system) filter(script string) error {
	_, table, _ := strings.Cut(script, "\ndelete table inet elemental_endpoint\n")
	var refused netip.AddrPort
	if match := refusal.FindStringSubmatch(table); match != nil {
		address, err := netip.ParseAddr(match[1])
		port, portErr := strconv.ParseUint(match[2], 10, 16)
		if err := errors.Join(err, portErr); err != nil {
			return fmt.Errorf("running nft: %w", err)
		}
		refused = netip.AddrPortFrom(address, uint16(port))
	}
	s.boot.mu.Lock()
	same := s.boot.table == table
	s.boot.table = table
	s.boot.mu.Unlock()
	if software := s.boot.host.fleet.settings.Software; software != nil && !same && s.boot.host.isInstalled() {
		software.Refuse(s.boot.host.machine(), refused)
	}
	return nil
}

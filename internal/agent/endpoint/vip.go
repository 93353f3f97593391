package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// servicesInterface holds the addresses of all Services if kube-proxy runs in
// IPVS mode. The host opens no connections from these addresses.
const servicesInterface = "kube-ipvs0"

// allInterfaces lists this machine's interfaces, including loopback.
func allInterfaces() ([]platform.NetworkInterface, error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list := make([]platform.NetworkInterface, 0, len(found))
	for _, nic := range found {
		addresses, err := nic.Addrs()
		if err != nil {
			continue // the interface was deleted in between, as those of Pods often are
		}
		listed := platform.NetworkInterface{Name: nic.Name}
		for _, address := range addresses {
			if network, ok := address.(*net.IPNet); ok {
				listed.Addresses = append(listed.Addresses, network)
			}
		}
		list = append(list, listed)
	}
	return list, nil
}

// localAddresses returns the host's addresses without those that kube-vip added.
func (a *Applier) localAddresses(current record) ([]netip.Addr, error) {
	interfaces, err := a.o.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the host's addresses: %w", err)
	}
	var local []netip.Addr
	for _, nic := range interfaces {
		for _, network := range nic.Addresses {
			address, ok := netip.AddrFromSlice(network.IP)
			if address = address.Unmap(); ok && nic.Name != servicesInterface && !slices.Contains(current.VIPs, address.String()) {
				local = append(local, address)
			}
		}
	}
	return local, nil
}

// applyVIP records the endpoint's virtual address, and removes former ones from
// the interfaces. A kube-vip that is about to end may add an address again, so
// the record keeps it until a later call finds it on no interface. If files
// exist and the endpoint is unknown, kube-vip is running, and its address
// stays.
func (a *Applier) applyVIP(ctx context.Context, current *record, endpoint *protocol.Endpoint) error {
	if endpoint == nil && len(current.Files) > 0 {
		return nil
	}
	var desired string
	if endpoint != nil && endpoint.VIP {
		if address, err := netip.ParseAddr(endpoint.Host); err == nil {
			desired = address.Unmap().String()
		}
	}
	vips := slices.DeleteFunc(slices.Clone(current.VIPs), func(vip string) bool { return vip == desired })
	var failures []error
	if len(vips) > 0 {
		found, err := a.findVIPs(vips)
		if err != nil {
			return err
		}
		vips = slices.DeleteFunc(vips, func(vip string) bool {
			return !slices.ContainsFunc(found, func(v assignedVIP) bool { return v.address.String() == vip })
		})
		for _, vip := range found {
			failures = append(failures, a.removeVIP(ctx, vip))
		}
	}
	if desired != "" {
		vips = append(vips, desired)
	}
	if !slices.Equal(vips, current.VIPs) {
		current.VIPs = vips
		failures = append(failures, a.document().Save(*current))
	}
	return errors.Join(failures...)
}

// assignedVIP is a virtual address on an interface.
type assignedVIP struct {
	address netip.Addr
	nic     string
}

func (v assignedVIP) String() string {
	return "address " + v.address.String() + " on interface " + v.nic
}

// findVIPs returns the given virtual addresses that are on interfaces. kube-vip
// adds them as /32 or /128; an address in a larger network is the host's own.
func (a *Applier) findVIPs(vips []string) ([]assignedVIP, error) {
	interfaces, err := a.o.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("looking for the control plane's virtual address: %w", err)
	}
	var found []assignedVIP
	for _, nic := range interfaces {
		for _, network := range nic.Addresses {
			address, ok := netip.AddrFromSlice(network.IP)
			address = address.Unmap()
			ones, bits := network.Mask.Size()
			if ok && ones == bits && slices.Contains(vips, address.String()) {
				found = append(found, assignedVIP{address, nic.Name})
			}
		}
	}
	return found, nil
}

func (a *Applier) removeVIP(ctx context.Context, vip assignedVIP) error {
	a.o.Log.Info("Removing the control plane's virtual address", "address", vip.address, "interface", vip.nic)
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	prefix := netip.PrefixFrom(vip.address, vip.address.BitLen())
	if _, err := a.o.Commands.Run(ctx, "", "ip", "address", "delete", prefix.String(), "dev", vip.nic); err != nil {
		return fmt.Errorf("removing the control plane's virtual address %s from %s: %w", vip.address, vip.nic, err)
	}
	return nil
}

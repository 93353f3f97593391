package kubevip

import (
	"fmt"
	"net/netip"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// loopback carries the address in mode BGP if spec names no interface. Routers send to
// the host's own address, so the host need not answer ARP requests for this one.
const loopback = "lo"

// Interface returns the interface of the host that carries the address: the one that vip
// names; in mode BGP the loopback; else the first with a subnet that contains the address;
// else the one of the default route. If no interface suits, why completes the phrase "the host".
func Interface(vip *infrav1.EndpointVIP, address string, host *infrav1.ElementalHost) (name, why string) {
	switch {
	case vip.Interface != "":
		if vip.Interface != loopback && nic(host, vip.Interface) == nil {
			return "", fmt.Sprintf("has no interface %s", vip.Interface)
		}
		return vip.Interface, ""
	case vip.Mode == infrav1.VIPModeBGP:
		return loopback, ""
	}
	for _, n := range nics(host) {
		if hasSubnetWith(n, address) {
			return n.Name, ""
		}
	}
	for _, n := range nics(host) {
		if n.DefaultRoute {
			return n.Name, ""
		}
	}
	return "", "has no interface with a subnet of the address and none with a default route"
}

// Reasons of Feasible.
const (
	NoInterface   = "without the interface of the virtual IP address"
	OutsideSubnet = "without a subnet of the virtual IP address"
)

// Feasible returns a function for placement.Constraints. It reports whether a host can
// carry the virtual IP address: the host has the interface that vip names, and in mode
// ARP a subnet that contains the address. Otherwise the address would be lost whenever
// the host is kube-vip's leader.
func Feasible(vip *infrav1.EndpointVIP, address string) func(*infrav1.ElementalHost) (why string, ok bool) {
	return func(host *infrav1.ElementalHost) (string, bool) {
		switch {
		case vip.Interface != "" && vip.Interface != loopback && nic(host, vip.Interface) == nil:
			return NoInterface, false
		case vip.Mode != infrav1.VIPModeBGP && !InSubnet(vip, address, host):
			return OutsideSubnet, false
		default:
			return "", true
		}
	}
}

// InSubnet reports whether the address is in a subnet of the host, or of the interface
// that vip names. In mode ARP only machines of that subnet can find the address.
func InSubnet(vip *infrav1.EndpointVIP, address string, host *infrav1.ElementalHost) bool {
	for _, n := range nics(host) {
		if (vip.Interface == "" || n.Name == vip.Interface) && hasSubnetWith(n, address) {
			return true
		}
	}
	return false
}

func nics(host *infrav1.ElementalHost) []infrav1.HostNIC {
	if host.Status.Inventory == nil {
		return nil
	}
	return host.Status.Inventory.NICs
}

func nic(host *infrav1.ElementalHost, name string) *infrav1.HostNIC {
	for _, n := range nics(host) {
		if n.Name == name {
			return &n
		}
	}
	return nil
}

// hasSubnetWith reports whether a subnet of the interface contains the address. Subnets of
// a single address don't count: the virtual address itself is one on its current host.
func hasSubnetWith(n infrav1.HostNIC, address string) bool {
	want, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	for _, a := range n.Addresses {
		subnet, err := netip.ParsePrefix(a)
		if err == nil && !subnet.IsSingleIP() && subnet.Contains(want.Unmap()) {
			return true
		}
	}
	return false
}

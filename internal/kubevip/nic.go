package kubevip

import (
	"fmt"
	"net/netip"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// loopback has the address in mode BGP when no interface is named: routers send
// to the host's own address, and no neighbour shall be told of this one.
const loopback = "lo"

// Interface returns the interface of the host that gets the address, or why there
// is none: the one that vip names; for BGP the loopback; else the first with a
// subnet that holds the address, else that of the default route.
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
		if holds(n, address) {
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

// Why a host is not able to have an address.
const (
	NoInterface   = "without the interface of the virtual IP address"
	OutsideSubnet = "without a subnet of the virtual IP address"
)

// Able returns what a host of the control plane must be like, as
// placement.Request wants it: it has the interface that vip names, and in mode ARP
// a subnet that holds the address, or the address would be lost whenever the host
// leads.
func Able(vip *infrav1.EndpointVIP, address string) func(*infrav1.ElementalHost) (why string, ok bool) {
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

// InSubnet reports whether the address is in a subnet of the host, of the
// interface that vip names if it names one. In mode ARP nobody would look for the
// address there otherwise.
func InSubnet(vip *infrav1.EndpointVIP, address string, host *infrav1.ElementalHost) bool {
	for _, n := range nics(host) {
		if (vip.Interface == "" || n.Name == vip.Interface) && holds(n, address) {
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

// holds leaves out subnets of a single address: one is that of a virtual address
// itself, on the host that has it now, which says nothing about the network.
func holds(n infrav1.HostNIC, address string) bool {
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

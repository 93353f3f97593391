package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// servicesInterface is where kube-proxy in its IPVS mode has the addresses of
// all Services, none of which the host connects from.
const servicesInterface = "kube-ipvs0"

// allInterfaces are those of this machine.
func allInterfaces() ([]host.Interface, error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list := make([]host.Interface, 0, len(found))
	for _, nic := range found {
		addresses, err := nic.Addrs()
		if err != nil {
			continue // it vanished meanwhile, as a Pod's does
		}
		one := host.Interface{Name: nic.Name}
		for _, address := range addresses {
			if network, ok := address.(*net.IPNet); ok {
				one.Addresses = append(one.Addresses, network)
			}
		}
		list = append(list, one)
	}
	return list, nil
}

// own are the host's addresses: what kube-vip put on is not.
func (k *Keeper) own(at record) ([]netip.Addr, error) {
	interfaces, err := k.o.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the host's addresses: %w", err)
	}
	var own []netip.Addr
	for _, nic := range interfaces {
		for _, network := range nic.Addresses {
			address, ok := netip.AddrFromSlice(network.IP)
			if address = address.Unmap(); ok && nic.Name != servicesInterface && !slices.Contains(at.VIPs, address.String()) {
				own = append(own, address)
			}
		}
	}
	return own, nil
}

// keepVIP remembers the endpoint's VIP, and takes those off that are no
// endpoint any more. A kube-vip that is ending may put one on again, so that one
// is forgotten only when a later pass finds it gone. While files are kept and
// nobody knows of an endpoint, kube-vip is at work, and its address stays.
func (k *Keeper) keepVIP(ctx context.Context, at *record, endpoint *protocol.Endpoint) error {
	if endpoint == nil && len(at.Files) > 0 {
		return nil
	}
	var current string
	if endpoint != nil && endpoint.VIP {
		if address, err := netip.ParseAddr(endpoint.Host); err == nil {
			current = address.Unmap().String()
		}
	}
	vips := slices.DeleteFunc(slices.Clone(at.VIPs), func(vip string) bool { return vip == current })
	var failures []error
	if len(vips) > 0 {
		on, err := k.addresses(vips)
		if err != nil {
			return err
		}
		vips = slices.DeleteFunc(vips, func(vip string) bool {
			return !slices.ContainsFunc(on, func(one virtual) bool { return one.address.String() == vip })
		})
		for _, one := range on {
			failures = append(failures, k.takeOff(ctx, one))
		}
	}
	if current != "" {
		vips = append(vips, current)
	}
	if !slices.Equal(vips, at.VIPs) {
		at.VIPs = vips
		failures = append(failures, k.document().Save(*at))
	}
	return errors.Join(failures...)
}

// virtual is a VIP on an interface.
type virtual struct {
	address netip.Addr
	nic     string
}

func (v virtual) String() string { return "address " + v.address.String() + " on interface " + v.nic }

// addresses finds VIPs on interfaces. One that is part of a network is the
// host's own: kube-vip's are alone (/32, /128).
func (k *Keeper) addresses(vips []string) ([]virtual, error) {
	interfaces, err := k.o.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("looking for the control plane's virtual address: %w", err)
	}
	var found []virtual
	for _, nic := range interfaces {
		for _, network := range nic.Addresses {
			address, ok := netip.AddrFromSlice(network.IP)
			address = address.Unmap()
			ones, bits := network.Mask.Size()
			if ok && ones == bits && slices.Contains(vips, address.String()) {
				found = append(found, virtual{address, nic.Name})
			}
		}
	}
	return found, nil
}

func (k *Keeper) takeOff(ctx context.Context, one virtual) error {
	k.o.Log.Info("Taking the control plane's virtual address off", "address", one.address, "interface", one.nic)
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	prefix := netip.PrefixFrom(one.address, one.address.BitLen())
	if _, err := k.o.Commands.Run(ctx, "", "ip", "address", "delete", prefix.String(), "dev", one.nic); err != nil {
		return fmt.Errorf("taking the control plane's virtual address %s off %s: %w", one.address, one.nic, err)
	}
	return nil
}

package linux

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// unusableFlags are the flags of an IPv6 address at which a host must not be
// contacted: temporary, deprecated, tentative, and failed duplicate detection.
const unusableFlags = 0x01 | 0x20 | 0x40 | 0x08

// network reads the host's network interfaces and addresses.
type network struct {
	root       root
	interfaces func() ([]platform.NetworkInterface, error)
	hostname   hostname
}

// Addresses returns the host's own addresses, without those of loopback, Pods,
// bridges and tunnels. Addresses of the default route's interface come first,
// the host name last. A /32 IPv4 address is omitted if the interface has an
// address in a larger network: kube-vip adds such virtual addresses, and they
// move to other hosts.
func (n network) Addresses(context.Context) ([]protocol.Address, error) {
	interfaces, err := n.hostInterfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces: %w", err)
	}
	unusable := n.unusableIPv6()
	var list []protocol.Address
	for _, nic := range interfaces {
		if !nic.Up {
			continue
		}
		hasSubnet := slices.ContainsFunc(nic.Addresses, isIPv4InSubnet)
		for _, address := range nic.Addresses {
			ip := address.IP
			isVirtual := hasSubnet && ip.To4() != nil && !isIPv4InSubnet(address)
			if !ip.IsGlobalUnicast() || unusable[nic.Name+" "+ip.String()] || isVirtual {
				continue
			}
			list = append(list, protocol.Address{Type: protocol.AddressInternalIP, Address: ip.String()})
		}
	}
	if name, err := n.hostname.Hostname(); err == nil && name != "" {
		list = append(list, protocol.Address{Type: protocol.AddressHostname, Address: name})
	}
	return list, nil
}

// LocalAddresses returns the addresses of all interfaces except loopback: those
// that Addresses returns first, then those of bridges and tunnels, where the
// API server may listen as well.
func (n network) LocalAddresses() []string {
	var local []string
	if addresses, err := n.Addresses(context.Background()); err == nil {
		for _, address := range addresses {
			if address.Type == protocol.AddressInternalIP {
				local = append(local, address.Address)
			}
		}
	}
	interfaces, err := n.interfaces()
	if err != nil {
		return local
	}
	for _, nic := range interfaces {
		for _, address := range nic.Addresses {
			if ip := address.IP; ip.IsGlobalUnicast() && !slices.Contains(local, ip.String()) {
				local = append(local, ip.String())
			}
		}
	}
	return local
}

// nics describes the host's own interfaces.
func (n network) nics() ([]protocol.NIC, error) {
	interfaces, err := n.hostInterfaces()
	if err != nil {
		return nil, err
	}
	route := n.defaultRoute()
	var nics []protocol.NIC
	for _, nic := range interfaces {
		speed, _ := strconv.ParseInt(n.root.text("/sys/class/net/"+nic.Name+"/speed"), 10, 32)
		described := protocol.NIC{
			Name: nic.Name, MAC: nic.MAC, SpeedMbps: int32(max(speed, 0)), DefaultRoute: nic.Name == route,
		}
		for _, address := range nic.Addresses {
			described.Addresses = append(described.Addresses, address.String())
		}
		nics = append(nics, described)
	}
	return nics, nil
}

// hostInterfaces returns the host's own interfaces, that of the default route
// first.
func (n network) hostInterfaces() ([]platform.NetworkInterface, error) {
	all, err := n.interfaces()
	if err != nil {
		return nil, err
	}
	route := n.defaultRoute()
	own := slices.DeleteFunc(slices.Clone(all), func(nic platform.NetworkInterface) bool {
		return nic.Name != route && !n.isHostInterface(nic.Name)
	})
	slices.SortStableFunc(own, func(a, b platform.NetworkInterface) int {
		switch {
		case a.Name == route && b.Name != route:
			return -1
		case b.Name == route && a.Name != route:
			return 1
		}
		return 0
	})
	return own, nil
}

// isHostInterface reports whether an interface is hardware, or a bond or VLAN
// on top of hardware. In a container that acts as a host, interfaces have no
// hardware; only their names distinguish them from those of Pods.
func (n network) isHostInterface(name string) bool {
	base := "/sys/class/net/" + name
	if isPodInterface(name) {
		return false
	}
	if n.root.exists(base + "/device") {
		return true
	}
	var kind string
	n.root.eachPair(base+"/uevent", "=", func(key, value string) {
		if key == "DEVTYPE" {
			kind = value
		}
	})
	switch kind {
	case "bond", "vlan", "wlan":
		return true
	case "":
		return strings.HasPrefix(name, "eth") || strings.HasPrefix(name, "en")
	}
	return false
}

// defaultRoute returns the interface of the IPv4 default route with the lowest
// metric, or of the IPv6 default route if there is no IPv4 one.
func (n network) defaultRoute() string {
	name, lowest := "", uint64(1<<63)
	consider := func(candidate, metric string, base int) {
		if value, err := strconv.ParseUint(metric, base, 64); err == nil && value < lowest && candidate != "lo" {
			name, lowest = candidate, value
		}
	}
	for _, fields := range n.root.table("/proc/net/route") {
		if len(fields) >= 8 && fields[1] == "00000000" && fields[7] == "00000000" {
			consider(fields[0], fields[6], 10)
		}
	}
	if name != "" {
		return name
	}
	for _, fields := range n.root.table("/proc/net/ipv6_route") {
		if len(fields) >= 10 && fields[0] == strings.Repeat("0", 32) && fields[1] == "00" {
			consider(fields[9], fields[5], 16)
		}
	}
	return name
}

// unusableIPv6 returns a set of "interface address" strings.
func (n network) unusableIPv6() map[string]bool {
	unusable := map[string]bool{}
	for _, fields := range n.root.table("/proc/net/if_inet6") {
		if len(fields) < 6 {
			continue
		}
		flags, err := strconv.ParseUint(fields[4], 16, 32)
		if ip := parseHexIP(fields[0]); err == nil && flags&unusableFlags != 0 && ip != "" {
			unusable[fields[5]+" "+ip] = true
		}
	}
	return unusable
}

package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Flags of an IPv6 address that make it unfit to be reached at: temporary,
// deprecated, tentative, and failed duplicate detection.
const unfitFlags = 0x01 | 0x20 | 0x40 | 0x08

// Addresses are the host's own: none of loopback, pods, bridges or tunnels.
// Those of the default route's interface come first, the host name last. An
// IPv4 address that is alone in its network (/32) beside a proper one is left
// out: it is a virtual one, as kube-vip adds, and moves to other hosts.
func (l *Linux) Addresses(context.Context) ([]protocol.Address, error) {
	interfaces, err := l.hostInterfaces()
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces: %w", err)
	}
	unfit := l.unfitIPv6()
	var list []protocol.Address
	for _, nic := range interfaces {
		if !nic.Up {
			continue
		}
		proper := slices.ContainsFunc(nic.Addresses, isProperIPv4)
		for _, address := range nic.Addresses {
			ip := address.IP
			if !ip.IsGlobalUnicast() || unfit[nic.Name+" "+ip.String()] || proper && ip.To4() != nil && !isProperIPv4(address) {
				continue
			}
			list = append(list, protocol.Address{Type: protocol.AddressInternalIP, Address: ip.String()})
		}
	}
	if name, err := l.Hostname(); err == nil && name != "" {
		list = append(list, protocol.Address{Type: protocol.AddressHostname, Address: name})
	}
	return list, nil
}

// Own are the addresses of all interfaces but loopback's: first those that
// Addresses reports, then those of bridges and tunnels, where a host's own may be
// as well.
func (l *Linux) Own() []string {
	var own []string
	if addresses, err := l.Addresses(context.Background()); err == nil {
		for _, address := range addresses {
			if address.Type == protocol.AddressInternalIP {
				own = append(own, address.Address)
			}
		}
	}
	interfaces, err := l.interfaces()
	if err != nil {
		return own
	}
	for _, nic := range interfaces {
		for _, address := range nic.Addresses {
			if ip := address.IP; ip.IsGlobalUnicast() && !slices.Contains(own, ip.String()) {
				own = append(own, ip.String())
			}
		}
	}
	return own
}

// nics are the host's own interfaces.
func (l *Linux) nics() ([]protocol.NIC, error) {
	interfaces, err := l.hostInterfaces()
	if err != nil {
		return nil, err
	}
	route := l.defaultRoute()
	var nics []protocol.NIC
	for _, nic := range interfaces {
		speed, _ := strconv.ParseInt(l.text("/sys/class/net/"+nic.Name+"/speed"), 10, 32)
		one := protocol.NIC{
			Name: nic.Name, MAC: nic.MAC, SpeedMbps: int32(max(speed, 0)), DefaultRoute: nic.Name == route,
		}
		for _, address := range nic.Addresses {
			one.Addresses = append(one.Addresses, address.String())
		}
		nics = append(nics, one)
	}
	return nics, nil
}

// hostInterfaces leaves out what isn't the host's own, and puts the default
// route's interface first.
func (l *Linux) hostInterfaces() ([]Interface, error) {
	all, err := l.interfaces()
	if err != nil {
		return nil, err
	}
	route := l.defaultRoute()
	own := slices.DeleteFunc(slices.Clone(all), func(nic Interface) bool {
		return nic.Name != route && !l.isHostInterface(nic.Name)
	})
	slices.SortStableFunc(own, func(a, b Interface) int {
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

// isHostInterface tells by the kind of link: hardware, or bonds and VLANs on
// top of it. A container that plays a host has links without hardware, which
// are told from those of pods by their names.
func (l *Linux) isHostInterface(name string) bool {
	base := "/sys/class/net/" + name
	if isPodInterface(name) {
		return false
	}
	if l.exists(base + "/device") {
		return true
	}
	var kind string
	l.eachPair(base+"/uevent", "=", func(key, value string) {
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

// defaultRoute is the interface of the IPv4 default route with the lowest
// metric, or that of the IPv6 one where there is none.
func (l *Linux) defaultRoute() string {
	name, best := "", uint64(1<<63)
	better := func(candidate, metric string, base int) {
		if value, err := strconv.ParseUint(metric, base, 64); err == nil && value < best && candidate != "lo" {
			name, best = candidate, value
		}
	}
	for _, fields := range l.table("/proc/net/route") {
		if len(fields) >= 8 && fields[1] == "00000000" && fields[7] == "00000000" {
			better(fields[0], fields[6], 10)
		}
	}
	if name != "" {
		return name
	}
	for _, fields := range l.table("/proc/net/ipv6_route") {
		if len(fields) >= 10 && fields[0] == strings.Repeat("0", 32) && fields[1] == "00" {
			better(fields[9], fields[5], 16)
		}
	}
	return name
}

// unfitIPv6 are "interface address" pairs that nobody should use.
func (l *Linux) unfitIPv6() map[string]bool {
	unfit := map[string]bool{}
	for _, fields := range l.table("/proc/net/if_inet6") {
		if len(fields) < 6 {
			continue
		}
		flags, err := strconv.ParseUint(fields[4], 16, 32)
		if ip := parseHexIP(fields[0]); err == nil && flags&unfitFlags != 0 && ip != "" {
			unfit[fields[5]+" "+ip] = true
		}
	}
	return unfit
}

// table reads the fields of a file's lines.
func (l *Linux) table(name string) [][]string {
	data, err := os.ReadFile(l.path(name))
	if err != nil {
		return nil
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			rows = append(rows, fields)
		}
	}
	return rows
}
